//! The life of a network: it starts, waits for an event that ends the network, and ends the network.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use netvale_gateway::control::message::ControlRequest;
use rustix::event::{PollFd, PollFlags, poll};

use super::api::{ApiAudience, GvApi};
use super::control::GvControl;
use super::endpoint::GvEndpoint;
use super::exposed::ExposedPorts;
use super::http::{self, HttpPreface};
use super::network::{GvNetwork, SwitchClient};
use super::place::GvPlace;
use super::relay::GuestDialer;
use super::settings::GvSettings;
use super::ssh::SshPlaces;
use super::stream::{GvListener, GvStream};
use super::watch::{self, Notifier};
use super::{GvFailure, forwards, framing, log, start_thread};
use crate::signals;

/// Runs a network until a signal arrives, its only guest leaves, or a step fails. The error is the reason why the
/// network has ended.
pub(super) fn run(settings: &GvSettings) -> Result<(), GvFailure> {
    let (over, reasons) = channel();
    watch_fd("signals", signals::stop_pipe()?.into(), over.clone(), "signal caught")?;
    let _pid_file = settings.pid_file.as_deref().map(GvPidFile::write).transpose()?;
    let notifier = Notifier::new(settings.notification.clone())?;
    let place = GvPlace::make()?;
    let guests_api = Arc::new(GvListener::at_path(&place.api())?);
    let network = GvNetwork::start(settings, &place)?;
    watch_fd("gateway", network.gateway_end()?, over.clone(), "the gateway has ended")?;
    log::info(format_args!("netvale --run-dir {} list shows the switch", place.folder().display()));
    let mut running = RunningNetwork { listeners: vec![], api: Arc::new(api(settings, &place)), place: &place };
    let done = running.begin(settings, guests_api, &notifier, over).and_then(|()| {
        notifier.send("ready");
        wait(&reasons)
    });
    running.end();
    drop(network);
    done
}

fn api(settings: &GvSettings, place: &GvPlace) -> GvApi {
    let control = Arc::new(GvControl::new(place.control()));
    let dialer = GuestDialer { path: place.dial() };
    let places = SshPlaces { folder: place.folder().to_owned(), dialer: dialer.clone() };
    GvApi {
        exposed: ExposedPorts::new(Arc::clone(&control), places),
        control,
        dialer,
        switch: SwitchClient { run_dir: place.folder().to_owned() },
        net: settings.net.clone(),
        framing: settings.framing,
        connect: place.connect(),
        zones: Mutex::new(settings.zones.clone()),
    }
}

fn wait(reasons: &Receiver<String>) -> Result<(), GvFailure> {
    Err(GvFailure(reasons.recv().unwrap_or_else(|why| why.to_string())))
}

/// Sends the reason `why` to `over` once a descriptor becomes readable.
fn watch_fd(name: &str, fd: OwnedFd, over: Sender<String>, why: &'static str) -> Result<(), GvFailure> {
    let work = move || {
        // Only a wait that a signal interrupted is repeated: any other error of poll(2) would recur.
        while poll(&mut [PollFd::new(&fd, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
        // The call fails only if the network is already ending.
        let _ = over.send(why.to_owned());
    };
    start_thread(name, work)
}

/// A network whose processes are running.
struct RunningNetwork<'a> {
    listeners: Vec<Arc<GvListener>>,
    api: Arc<GvApi>,
    place: &'a GvPlace,
}

impl RunningNetwork<'_> {
    fn begin(
        &mut self,
        settings: &GvSettings,
        guests_api: Arc<GvListener>,
        notifier: &Notifier,
        over: Sender<String>,
    ) -> Result<(), GvFailure> {
        self.fill(settings)?;
        let has_streams = settings.has_stdio || !settings.listen.is_empty();
        if has_streams {
            self.api.switch.attach_connect(&self.place.connect(), &settings.net)?;
        }
        log::info("waiting for clients...");
        for endpoint in &settings.listen {
            log::info(format_args!("listening {}", endpoint.text));
            self.listen(endpoint, ApiAudience::Host)?;
        }
        if let Some(endpoint) = &settings.services {
            log::info(format_args!("enabling services API. Listening {}", endpoint.text));
            self.listen(endpoint, ApiAudience::Services)?;
        }
        self.serve(guests_api, ApiAudience::Guests)?;
        let watched = watch::begin(self.api.switch.clone(), notifier.clone(), single_ports(settings), over.clone());
        watched.and_then(|()| self.api.switch.attach_guests(settings)).inspect_err(|_| {
            notifier.send("hypervisor_error");
        })?;
        self.forward(settings)?;
        if settings.has_stdio {
            carry_stdio(self.place.connect(), over)?;
        }
        Ok(())
    }

    /// Adds the DNS zones and exposes the ports that the settings list.
    fn fill(&self, settings: &GvSettings) -> Result<(), GvFailure> {
        for zone in &settings.zones {
            let request = ControlRequest::SetNames { zone: zone.for_gateway() };
            self.api.control.ask(&request).map_err(GvFailure::step("cannot add network services"))?;
        }
        for port in &settings.ports {
            let exposed = self.api.exposed.expose(port.protocol, &port.local, &port.remote);
            exposed.map_err(GvFailure::step("cannot add network services"))?;
        }
        Ok(())
    }

    fn listen(&mut self, endpoint: &GvEndpoint, audience: ApiAudience) -> Result<(), GvFailure> {
        let listener = GvListener::listen(endpoint).map_err(GvFailure::step("cannot listen"))?;
        self.serve(Arc::new(listener), audience)
    }

    fn serve(&mut self, listener: Arc<GvListener>, audience: ApiAudience) -> Result<(), GvFailure> {
        let api = Arc::clone(&self.api);
        let answers = move |request| api.answer(request, audience);
        // The gateway begins each connection from its port 80 with the guest's address.
        let preface = if audience == ApiAudience::Guests { HttpPreface::ProxyLine } else { HttpPreface::None };
        self.listeners.push(Arc::clone(&listener));
        http::serve(listener, Arc::new(answers), preface).map(drop).map_err(GvFailure::step("cannot start a thread"))
    }

    fn forward(&mut self, settings: &GvSettings) -> Result<(), GvFailure> {
        for (number, tunnel) in settings.tunnels.iter().enumerate() {
            self.listeners.push(forwards::begin(tunnel, number, &self.api.exposed.places)?);
        }
        Ok(())
    }

    /// Closes all listeners, which removes their files.
    fn end(&self) {
        self.listeners.iter().for_each(|listener| listener.close());
        self.api.exposed.close_sockets();
    }
}

/// Returns the names of the ports whose guest ends the network when it leaves, since gvproxy accepts only one guest on
/// such a port and exits when the guest leaves.
fn single_ports(settings: &GvSettings) -> Vec<String> {
    if settings.guests.is_empty() { Vec::new() } else { vec!["vm".to_owned(), "vfkit".to_owned()] }
}

/// Carries frames between standard input and output and the switch. The network ends when standard input ends.
fn carry_stdio(socket: PathBuf, over: Sender<String>) -> Result<(), GvFailure> {
    let port = GvStream::connect(&socket).map_err(GvFailure::step("cannot connect to the switch"))?;
    let work = move || {
        framing::carry(&[], std::io::stdin(), std::io::stdout(), port);
        let _ = over.send("cannot receive packets from standard input, disconnecting: EOF".to_owned());
    };
    start_thread("stdio", work)
}

/// A file with the process ID, which is removed when this value is dropped.
struct GvPidFile(PathBuf);

impl GvPidFile {
    fn write(path: &Path) -> Result<GvPidFile, GvFailure> {
        let written = std::fs::write(path, std::process::id().to_string());
        written.map_err(GvFailure::step("failed to create pidfile"))?;
        Ok(GvPidFile(path.to_owned()))
    }
}

impl Drop for GvPidFile {
    fn drop(&mut self) {
        if let Err(why) = std::fs::remove_file(&self.0) {
            log::error(format_args!("failed to remove pidfile: {why}"));
        }
    }
}
