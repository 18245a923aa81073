//! Open vSwitch with DPDK: a database server and a switch daemon. Several may run, each with its files in a folder of
//! its own.

use crate::peers::testpmd::Place;
use crate::prelude::*;

/// Debian's build with DPDK, by its own path: `ovs-vswitchd` may lead to the build without DPDK, which is installed as
/// well.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const PACKAGE: &str = "openvswitch-switch-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Hugepages for a switch: 1 GiB, enough for its default pool of 256 Ki mbufs.
pub const SWITCH_PAGES: u64 = 512;
const START_LIMIT: Duration = Duration::from_secs(20);

/// What a switch needs to run, besides testpmd.
pub const NEEDS: &[Need] = &[Need::Program("ovsdb-server", PACKAGE), Need::Found(with_dpdk)];

fn with_dpdk() -> std::result::Result<(), Skip> {
    let missing = Skip::NotInstalled { program: "ovs-vswitchd-dpdk", package: PACKAGE };
    if Path::new(VSWITCHD).is_file() { Ok(()) } else { Err(missing) }
}

/// A database server and its switch daemon. The sockets of vhost-user ports are in the switch's folder.
pub struct Switch {
    daemon: Child,
    database: Child,
    folder: PathBuf,
}

impl Switch {
    /// Starts the database server and the switch daemon, without a bridge. `name` distinguishes the switches of a
    /// place, by their folders and DPDK's files. TAPs are made in `namespace`, or in a namespace of the switch's own.
    /// The main thread and the forwarding thread run on `cores`, or on the CPUs that OVS chooses. `more` are further
    /// settings of the table `Open_vSwitch`.
    pub fn start(
        place: &Place,
        name: &str,
        namespace: Option<&Netns>,
        cores: Option<Cores>,
        more: &[&str],
    ) -> Result<Self> {
        let folder = place.path().join(name);
        std::fs::create_dir(&folder).map_err(BenchError::io(format!("creating {}", folder.display())))?;
        let file = |name: &str| folder.join(name).display().to_string();
        child::run(Command::new("ovsdb-tool").args(["create", &file("conf.db"), SCHEMA]))?;
        let mut command = in_folder(&folder, Command::new("ovsdb-server"));
        command.arg(format!("--remote=punix:{}", file("db.sock")));
        command.arg(format!("--unixctl={}", file("db.ctl"))).arg(file("conf.db"));
        let database = Child::spawn(command, &folder.join("ovsdb.log"))?;
        wait_for(&folder.join("db.sock"), "ovsdb-server")?;
        configure(&folder, name, &place.file("huge"), cores, more)?;
        let mut command = in_folder(&folder, inside(namespace));
        command.arg(format!("unix:{}", file("db.sock"))).arg(format!("--unixctl={}", file("switch.ctl")));
        let daemon = Child::spawn(command, &folder.join("vswitchd.log"))?;
        Ok(Self { daemon, database, folder })
    }

    /// Runs `ovs-vsctl` with blank-separated words, and waits until the daemon has applied them.
    pub fn set(&self, words: &str) -> Result<()> {
        control(&self.folder, ["--timeout=30"].into_iter().chain(words.split_whitespace())).map_err(|error| {
            let log = std::fs::read_to_string(self.folder.join("vswitchd.log")).unwrap_or_default();
            BenchError::failed(VSWITCHD, error, &log)
        })
    }

    /// Runs `ovs-appctl` with blank-separated words. Returns the daemon's answer.
    pub fn ask(&self, words: &str) -> Result<String> {
        let mut command = in_folder(&self.folder, Command::new("ovs-appctl"));
        command.arg(format!("--target={}", self.folder.join("switch.ctl").display()));
        child::run(command.args(words.split_whitespace()))
    }

    /// Adds a flow to bridge `br0`.
    pub fn add_flow(&self, flow: &str) -> Result<()> {
        let mut command = in_folder(&self.folder, Command::new("ovs-ofctl"));
        child::run(command.args(["add-flow", "br0", flow])).map(drop)
    }

    /// Waits until the socket of vhost-user port `name` exists, and returns its path.
    pub fn socket(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        wait_for(&path, VSWITCHD).map(|()| path)
    }
}

impl Part for Switch {
    fn children(&self) -> Vec<&Child> {
        vec![&self.daemon]
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.daemon.pid(), self.database.pid()]
    }

    fn threads(&self) -> Vec<(u32, u32)> {
        threads_named(self.daemon.pid(), &["pmd"])
    }
}

/// Returns the daemon's command in a namespace.
fn inside(namespace: Option<&Netns>) -> Command {
    if let Some(namespace) = namespace {
        return namespace.command(VSWITCHD);
    }
    let mut command = Command::new("unshare");
    command.args(["--net", VSWITCHD]);
    command
}

/// Makes a command keep all of Open vSwitch's files in `folder`.
fn in_folder(folder: &Path, mut command: Command) -> Command {
    for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"] {
        command.env(name, folder);
    }
    command
}

fn control<'a>(folder: &Path, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut command = in_folder(folder, Command::new("ovs-vsctl"));
    command.arg(format!("--db=unix:{}", folder.join("db.sock").display())).args(words);
    child::run(&mut command).map(drop)
}

fn configure(folder: &Path, name: &str, huge: &str, cores: Option<Cores>, more: &[&str]) -> Result<()> {
    let kept = "--no-pci --no-telemetry";
    let extra = format!("other_config:dpdk-extra={kept} --file-prefix={name} --huge-dir={huge}");
    let mask = |name: &str, core: usize| format!("other_config:{name}={:#x}", 1u64 << (core % 64));
    let masks = cores.map(|cores| [mask("dpdk-lcore-mask", cores.0), mask("pmd-cpu-mask", cores.1)]);
    let masks = masks.iter().flatten().map(String::as_str);
    let memory = format!("other_config:dpdk-socket-mem={}", SWITCH_PAGES * 2);
    let fixed = ["--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true"];
    let quiet = ["other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1"];
    control(folder, ["--no-wait", "init"])?;
    let words = fixed.into_iter().chain([&*extra, &*memory]).chain(masks).chain(quiet);
    control(folder, words.chain(more.iter().copied()))
}

fn wait_for(file: &Path, program: &str) -> Result<()> {
    interrupt::poll_until(START_LIMIT, || Ok(file.exists().then_some(())))?.ok_or_else(|| BenchError::Silent {
        program: program.to_owned(),
        wanted: file.display().to_string(),
        limit: START_LIMIT,
        output: String::new(),
    })
}
