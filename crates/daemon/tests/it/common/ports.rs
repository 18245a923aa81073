//! Ports that are attached to `vale0`, and frames with numbers in files.

use std::path::Path;

use netvale::{Options, Port};
use netvale_pcapport::Reader;
use serde_json::{Value, json};

use super::{Daemon, frame};

pub fn attach(d: &Daemon, port: &str, options: Value) {
    let reply = d.call("port.attach", json!({"switch": "vale0", "port": port, "options": options}));
    assert!(reply["error"].is_null(), "{reply}");
}

/// Opens a port with room for all that may come together.
pub fn open(d: &Daemon, name: &str) -> Port {
    Port::open_with(name, &Options { slots: 1024, ..d.options() }).unwrap()
}

pub fn show(d: &Daemon, port: &str) -> Value {
    d.call("port.show", json!({"port": port}))["result"].take()
}

pub fn notes(d: &Daemon, port: &str) -> String {
    show(d, port)["notes"].to_string()
}

/// Attaches the device `kind` of a guest. Returns the path of its socket.
pub fn attach_guest(d: &Daemon, kind: &str, mut options: Value) -> std::path::PathBuf {
    let path = d.path("guest.sock");
    options["name"] = json!("guest");
    attach(d, &format!("{kind}:{}", path.display()), options);
    assert_eq!(show(d, "vale0:guest")["kind"], kind);
    path
}

/// A frame with that number.
pub fn numbered(number: u32) -> Vec<u8> {
    let mut bytes = frame(255, 1, 0).to_vec();
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number of a frame.
pub fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// The numbers of the frames in a file.
pub fn numbers(path: &Path) -> Vec<u32> {
    let (mut reader, mut all) = (Reader::open(path).unwrap(), Vec::new());
    while let Some(frame) = reader.next_frame().unwrap() {
        all.push(number(frame.bytes));
    }
    all
}
