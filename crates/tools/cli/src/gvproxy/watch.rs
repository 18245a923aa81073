//! Guests that come and go: notifications about them, and the end of the network when its only guest leaves.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use netvale_control::client::Client;
use netvale_control::types::{Event, SubscribeParams};
use serde::Serialize;

use super::network::{SWITCH, SwitchClient};
use super::stream::GvStream;
use super::{GvFailure, log, start_thread};

/// How long a wait for an event lasts if there is no socket for notifications.
const LONG: Duration = Duration::from_secs(3600);
/// Interval at which guests' addresses are looked up if there is a socket for notifications.
const LOOK: Duration = Duration::from_millis(250);
/// Time limit for a notification.
const LIMIT: Duration = Duration::from_secs(5);

/// A notification, in gvproxy's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct GvNotice {
    notification_type: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    mac_address: String,
}

/// Sends notifications, each on a new connection, in a separate thread. If there is no socket for notifications, it
/// sends none.
#[derive(Clone, Debug)]
pub(super) struct Notifier(Option<Sender<GvNotice>>);

impl Notifier {
    /// Creates a notifier that sends to the socket at a path; with `None`, it sends nothing.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn new(socket: Option<PathBuf>) -> Result<Notifier, GvFailure> {
        let Some(socket) = socket else { return Ok(Notifier(None)) };
        let (sender, notices) = channel();
        let work = move || send_all(&socket, &notices);
        start_thread("notify", work)?;
        Ok(Notifier(Some(sender)))
    }

    /// Sends a notification about the network.
    pub(super) fn send(&self, kind: &'static str) {
        self.about(kind, String::new());
    }

    fn about(&self, kind: &'static str, mac: String) {
        if let Some(sender) = &self.0 {
            // This does not fail, since the thread runs as long as a sender exists.
            let _ = sender.send(GvNotice { notification_type: kind, mac_address: mac });
        }
    }
}

fn send_all(socket: &std::path::Path, notices: &Receiver<GvNotice>) {
    for notice in notices {
        let line = super::json::line(&notice);
        let sent = GvStream::connect(socket).and_then(|stream| {
            stream.limit(Some(LIMIT))?;
            (&stream).write_all(line.as_bytes())
        });
        if let Err(why) = sent {
            log::error(format_args!("failed to send notification: {why}"));
        }
    }
}

/// The Ethernet addresses of the guests that were seen, with the full names of the guests' ports.
#[derive(Debug, Default)]
struct SeenGuests(BTreeMap<String, String>);

impl SeenGuests {
    /// Returns the addresses that are new.
    fn learn(&mut self, learned: BTreeMap<String, String>) -> Vec<String> {
        let is_new = |(mac, port): (String, String)| self.0.insert(mac.clone(), port).is_none().then_some(mac);
        learned.into_iter().filter_map(is_new).collect()
    }

    /// Forgets the addresses of a port, and returns them.
    fn leave(&mut self, port: &str) -> Vec<String> {
        self.0.extract_if(.., |_, known| known == port).map(|(mac, _)| mac).collect()
    }
}

/// Watches guests until the daemon ends. `single` are the ports whose guest ends the network when it leaves. When such
/// a guest leaves or the daemon ends, the reason is sent to `over`.
///
/// # Errors
/// The daemon does not answer, or the thread cannot be started.
pub(super) fn begin(
    switch: SwitchClient,
    notifier: Notifier,
    single: Vec<String>,
    over: Sender<String>,
) -> Result<(), GvFailure> {
    let failed = || GvFailure::step("cannot watch guests");
    let mut client = Client::connect(&switch.run_dir).map_err(failed())?;
    let params = SubscribeParams { only: Vec::new(), names: vec!["guest".to_owned()], snapshot: false };
    client.subscribe(params).map_err(failed())?;
    let watch = move || {
        let mut seen = SeenGuests::default();
        let limit = if notifier.0.is_some() { LOOK } else { LONG };
        loop {
            match client.next_event(limit) {
                Ok(Some(event)) => take(&event, &mut seen, &notifier, &single, &over),
                Ok(None) => {}
                Err(_) => {
                    // The call fails only if the network is already ending.
                    let _ = over.send("the switch's daemon has ended".to_owned());
                    return;
                }
            }
            if notifier.0.is_some() {
                let new = seen.learn(switch.learned().unwrap_or_default());
                new.into_iter().for_each(|mac| notifier.about("connection_established", mac));
            }
        }
    };
    start_thread("watch", watch)
}

fn take(event: &Event, seen: &mut SeenGuests, notifier: &Notifier, single: &[String], over: &Sender<String>) {
    let port = event.port.as_deref().unwrap_or_default();
    log::debug(format_args!("{} {port}", event.name));
    if event.name != "guest.left" {
        return;
    }
    seen.leave(port).into_iter().for_each(|mac| notifier.about("connection_closed", mac));
    if single.iter().any(|name| format!("{SWITCH}:{name}") == port) {
        let why = event.why.as_deref().unwrap_or("EOF");
        let _ = over.send(format!("cannot receive packets from the guest, disconnecting: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn guests_are_new_once_until_they_leave() {
        let mut seen = SeenGuests::default();
        let learned = || BTreeMap::from([("a".to_owned(), "p".to_owned()), ("b".to_owned(), "q".to_owned())]);
        assert_eq!(seen.learn(learned()), ["a", "b"]);
        assert!(seen.learn(learned()).is_empty());
        assert_eq!(seen.leave("p"), ["a"]);
        assert_eq!(seen.learn(learned()), ["a"]);
    }

    /// Objective: each notification is one line on a new connection; if nothing listens on the socket, the notification
    /// is discarded.
    #[test]
    fn notifications_have_gvproxys_form() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path)).unwrap();
        notifier.send("ready");
        notifier.about("connection_closed", "5a:94:ef:e4:0c:ee".into());
        let next = || {
            let mut text = String::new();
            listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(next(), "{\"notification_type\":\"ready\"}\n");
        assert_eq!(next(), "{\"notification_type\":\"connection_closed\",\"mac_address\":\"5a:94:ef:e4:0c:ee\"}\n");
        Notifier::new(None).unwrap().send("ready");
    }
}
