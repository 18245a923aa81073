//! Two hosts with a daemon each, whose switches a tunnel joins.

use netvale_control::types::{AttachParams, PortOptions};

use crate::case::Case;
use crate::error::Result;
use crate::peers::dpdk::Part;
use crate::peers::underlay::{Underlay, VNI, vtep};
use crate::scenarios::own::{Daemon, failed};
use crate::sys::netns::Netns;

/// Both hosts' daemons.
pub struct Hosts {
    daemons: [Daemon; 2],
    underlay: Underlay,
}

impl Hosts {
    /// Starts them, each with all that it does on its core.
    ///
    /// # Errors
    /// Not root, or a daemon does not start.
    pub fn start(case: &Case, cores: (usize, usize)) -> Result<Self> {
        let underlay = Underlay::new(case, cores)?;
        let [near, far] = &underlay.hosts;
        let daemons = [Daemon::start_in(near, cores.0, "")?, Daemon::start_in(far, cores.1, "")?];
        let hosts = Self { daemons, underlay };
        for host in 0..2 {
            let tunnel = format!("vxlan:{VNI},local={},remote={}", vtep(host), vtep(1 - host));
            hosts.attach(host, &tunnel, PortOptions::default())?;
        }
        Ok(hosts)
    }

    /// The daemon of host 0 or 1.
    pub fn daemon(&self, host: usize) -> &Daemon {
        &self.daemons[host]
    }

    /// The network namespace of host 0 or 1.
    pub fn namespace(&self, host: usize) -> &Netns {
        &self.underlay.hosts[host]
    }

    /// Attaches a port to the switch of host 0 or 1.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn attach(&self, host: usize, port: &str, options: PortOptions) -> Result<()> {
        let params = AttachParams { switch: "vale0".into(), port: port.into(), options };
        self.daemon(host).control()?.attach(params).map(drop).map_err(|error| failed(&error))
    }
}

impl Part for Hosts {
    fn pids(&self) -> Vec<u32> {
        self.daemons.iter().map(|daemon| daemon.worker.pid()).collect()
    }

    fn freeze(&self) -> Result<()> {
        self.daemons.iter().try_for_each(|daemon| daemon.worker.freeze())
    }

    fn thaw(&self) -> Result<()> {
        self.daemons.iter().try_for_each(|daemon| daemon.worker.thaw())
    }
}
