//! SIGHUP: reloading of the daemon's own configuration file.

use std::io::Read;
use std::path::Path;

use netvale_control::framing::MAX_TRUSTED_LINE;
use netvale_control::types::{ApplyParams, ApplyResult, EventName};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::daemon::Daemon;
use crate::registry::events::NewEvent;

/// Reads the daemon's own configuration file, if it has one, and applies it. If there is an error, logs the error and
/// keeps the running configuration.
pub fn reload(d: &mut Daemon) {
    let Some(path) = d.config.file.clone() else { return };
    let name = path.display().to_string();
    let text = match read(&path) {
        Ok(text) => text,
        Err(why) => {
            tracing::error!("SIGHUP: cannot read {name}: {why}{}; nothing has changed", advice(d, &why));
            return;
        }
    };
    match super::apply(d, &ApplyParams { text, file: Some(name.clone()), ..ApplyParams::default() }) {
        Ok(applied) => {
            log(&name, &applied);
            d.events.tell(NewEvent::to(EventName::DaemonConfigured, 0).with("changes", applied.changes.len()));
        }
        Err(why) => tracing::error!("SIGHUP: {why}; {}", why.hint()),
    }
}

fn log(name: &str, applied: &ApplyResult) {
    for change in &applied.changes {
        tracing::info!(uid = 0, "{name}: {change}");
    }
    tracing::info!("SIGHUP: {name}: {} changes, {} ports not touched", applied.changes.len(), applied.unchanged);
}

fn advice(d: &Daemon, why: &std::io::Error) -> &'static str {
    if d.config.sandbox && why.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) {
        "; the daemon's user needs read permission and, if an editor replaces the file, a folder for this file alone: \
         'netvale apply' reads the file with your rights"
    } else {
        ""
    }
}

/// Reads a regular file of limited size. Refuses a FIFO or a device without blocking.
fn read(path: &Path) -> std::io::Result<String> {
    let fd =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).is_file() {
        return Err(std::io::Error::other("expected a regular file"));
    }
    let mut text = String::new();
    let most = MAX_TRUSTED_LINE as u64;
    std::fs::File::from(fd).take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(std::io::Error::other(format!("expected at most {} MiB", most >> 20)));
    }
    Ok(text)
}
