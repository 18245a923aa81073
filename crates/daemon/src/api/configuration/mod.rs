//! The methods `config.apply`, which applies a configuration file to the running daemon, and `config.export`, which
//! exports the running state as a file.
//!
//! | module | what it does |
//! |---|---|
//! | [`difference`] | compares the running ports with the ports of a file |
//! | [`settings`] | compares settings, and changes them |
//! | [`check`] | checks ports before any change |
//! | [`carrying`] | applies changes, and rolls them back |
//! | [`export`] | writes the running state as a file |
//! | [`reload`] | SIGHUP: reloads the daemon's own file |

mod carrying;
mod check;
mod difference;
mod export;
mod reload;
mod settings;
#[cfg(test)]
mod tests;

use netvale_control::types::{ApplyParams, ApplyResult, ConfigChange};
use netvale_control::{ErrorCode, RpcError};
use rustix::io::Errno;

use self::carrying::{RemainingDifferences, StepFailure};
use self::check::ConfigPortFault;
use self::difference::{ConfigPort, PortStep, RunningPorts};
use crate::config::{self, Config, Mistake, TextPlace};
use crate::daemon::Daemon;
use crate::permission::is_trusted;
use crate::refusal::Refusal;

pub use export::export;
pub use reload::reload;

/// File name that messages use if the request contains no file name.
const UNNAMED: &str = "the configuration";

/// Applies a configuration file to the daemon; with `dry_run`, only lists the differences.
///
/// # Errors
/// [`RpcError`] with the position of the fault in the file. After an error, the running state is unchanged, except for
/// differences that the message lists.
pub fn apply(d: &mut Daemon, asked: &ApplyParams) -> Result<ApplyResult, RpcError> {
    let file = ConfigText { name: asked.file.as_deref().unwrap_or(UNNAMED), text: &asked.text };
    let mut overrides = d.config.overrides.clone();
    // An exported file contains filter rules as text. A rule that a port already has is not compiled again. Only the
    // rules of trusted users' ports are reused, because another user may have set a program that does not match its
    // text.
    let own = d.ports.iter().filter(|(_, record)| is_trusted(record.owner)).map(|(_, record)| &record.policies);
    overrides.programs.extend(config::programs(own));
    overrides.programs.extend(asked.programs.clone());
    let wanted = config::parse(file.text, file.name, &overrides).map_err(malformed)?;
    let there = ports_of(d);
    let steps = difference::compare(&there, ConfigPort::of(&wanted.ports), asked.prune).map_err(|conflict| {
        file.refused(
            Some((conflict.index, "port")),
            &Refusal::new(Errno::EXIST, conflict.what),
            "; nothing has changed",
        )
    })?;
    check::check(d, &steps).map_err(|ConfigPortFault { index, key, refusal }| {
        file.refused(Some((index, key)), &refusal, "; nothing has changed")
    })?;
    let applied = told(d, &wanted, &steps, &there, asked.dry_run);
    if !asked.dry_run {
        let config = settings::possible(d, &wanted);
        carrying::carry_out(d, config, steps).map_err(|failed| file.failed(&failed))?;
    }
    Ok(applied)
}

/// A configuration file's name and text, to report where in the file a fault is.
struct ConfigText<'a> {
    name: &'a str,
    text: &'a str,
}

impl ConfigText<'_> {
    fn refused(&self, at: Option<(usize, &'static str)>, refusal: &Refusal, then: &str) -> RpcError {
        let place = at.and_then(|(index, key)| TextPlace::of_port(self.text, index, key));
        let (what, hint) = refusal.parts();
        let mistake = Mistake { file: self.name.to_owned(), place, what: format!("{what}{then}") };
        RpcError::from_errno(refusal.errno, mistake.to_string(), hint.unwrap_or("see the daemon's log"))
    }

    fn failed(&self, failed: &StepFailure) -> RpcError {
        let at = failed.index.map(|index| (index, "port"));
        self.refused(at, &failed.refusal, &aftermath(&failed.left))
    }
}

/// Returns a clause about the differences that remain after a rollback; the clause follows a semicolon.
fn aftermath(left: &RemainingDifferences) -> String {
    let mut said = String::new();
    if left.again.is_empty() && left.different.is_empty() {
        said += "; nothing has changed";
    }
    if !left.again.is_empty() {
        said += &format!(
            "; everything was rolled back; attached again, so that peers must reconnect: {}",
            left.again.join(", ")
        );
    }
    if !left.different.is_empty() {
        said += &format!("; not rolled back: {}", left.different.join(", "));
    }
    said
}

fn malformed(mistake: Mistake) -> RpcError {
    let hint = "nothing has changed; 'netvale apply --schema' prints what a file may contain";
    RpcError::new(ErrorCode::InvalidParams, mistake.to_string(), hint)
}

/// Returns the running ports, each with its attach parameters if it has any.
fn ports_of(d: &Daemon) -> RunningPorts {
    d.ports.iter().map(|(full, record)| (full.to_owned(), record.declared.clone())).collect()
}

fn told(d: &Daemon, wanted: &Config, steps: &[PortStep], there: &RunningPorts, dry_run: bool) -> ApplyResult {
    let goes = |full: &str| steps.iter().filter_map(PortStep::detaches).any(|gone| gone == full);
    let stays = d.ports.iter().filter(|(full, _)| !goes(full));
    let kept: Vec<String> = stays.filter_map(|(_, record)| Some(record.switch.as_ref()?.name().to_owned())).collect();
    let ports = steps.iter().filter_map(|step| step.change(there));
    let changes: Vec<ConfigChange> = settings::changes(d, wanted, &kept).into_iter().chain(ports).collect();
    let unchanged = steps.iter().filter(|step| matches!(step, PortStep::Keep(_))).count() as u32;
    ApplyResult { dry_run, changes, unchanged }
}
