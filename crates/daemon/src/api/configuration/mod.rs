//! `config.apply` and `config.export`: applies a configuration file to the running daemon, and exports the running
//! state as a file.
//!
//! | module | what it does |
//! |---|---|
//! | [`difference`] | compares ports with those of a file |
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

use netvale_control::types::{Applied, ApplyParams, Change};
use netvale_control::{ErrorCode, RpcError};
use rustix::io::Errno;

use self::carrying::{Failed, Left};
use self::check::Fault;
use self::difference::{Step, There, Wanted};
use crate::config::{self, Config, Mistake, Place};
use crate::daemon::Daemon;
use crate::permission::is_trusted;
use crate::refusal::Refusal;

pub use export::export;
pub use reload::reload;

/// Name of a file without a name in the request.
const UNNAMED: &str = "the configuration";

/// Applies a file to the daemon, or only lists the differences.
///
/// # Errors
/// [`RpcError`] with the position in the file. Nothing has changed then, except as the message states.
pub fn apply(d: &mut Daemon, asked: &ApplyParams) -> Result<Applied, RpcError> {
    let file = File { name: asked.file.as_deref().unwrap_or(UNNAMED), text: &asked.text };
    let mut overrides = d.config.overrides.clone();
    // An exported file has its rules as text; rules that ports already have need no compilation. Other users' programs
    // may differ from their text.
    let own = d.ports.iter().filter(|(_, record)| is_trusted(record.owner)).map(|(_, record)| &record.policies);
    overrides.programs.extend(config::programs(own));
    overrides.programs.extend(asked.programs.clone());
    let wanted = config::parse(file.text, file.name, &overrides).map_err(malformed)?;
    let there = ports_of(d);
    let steps = difference::compare(&there, Wanted::of(&wanted.ports), asked.prune).map_err(|conflict| {
        file.refused(
            Some((conflict.index, "port")),
            &Refusal::new(Errno::EXIST, conflict.what),
            "; nothing has changed",
        )
    })?;
    check::check(d, &steps)
        .map_err(|Fault { index, key, refusal }| file.refused(Some((index, key)), &refusal, "; nothing has changed"))?;
    let applied = told(d, &wanted, &steps, &there, asked.dry_run);
    if !asked.dry_run {
        let config = settings::possible(d, &wanted);
        carrying::carry_out(d, config, steps).map_err(|failed| file.failed(&failed))?;
    }
    Ok(applied)
}

/// A file's text, parsed once.
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn refused(&self, at: Option<(usize, &'static str)>, refusal: &Refusal, then: &str) -> RpcError {
        let place = at.and_then(|(index, key)| Place::of_port(self.text, index, key));
        let (what, hint) = refusal.parts();
        let mistake = Mistake { file: self.name.to_owned(), place, what: format!("{what}{then}") };
        RpcError::from_errno(refusal.errno, mistake.to_string(), hint.unwrap_or("see the daemon's log"))
    }

    fn failed(&self, failed: &Failed) -> RpcError {
        let at = failed.index.map(|index| (index, "port"));
        self.refused(at, &failed.refusal, &aftermath(&failed.left))
    }
}

/// Remaining differences after a rollback, to follow a semicolon.
fn aftermath(left: &Left) -> String {
    let mut said = String::new();
    if left.again.is_empty() && left.different.is_empty() {
        said += "; nothing has changed";
    }
    if !left.again.is_empty() {
        said += &format!(
            "; everything was taken back; attached again, so that peers have to connect again: {}",
            left.again.join(", ")
        );
    }
    if !left.different.is_empty() {
        said += &format!("; NOT as before: {}", left.different.join(", "));
    }
    said
}

fn malformed(mistake: Mistake) -> RpcError {
    let hint = "nothing has changed; 'netvale apply --schema' says what a file may have";
    RpcError::new(ErrorCode::InvalidParams, mistake.to_string(), hint)
}

/// Returns the running ports with their attach parameters.
fn ports_of(d: &Daemon) -> There {
    d.ports.iter().map(|(full, record)| (full.to_owned(), record.declared.clone())).collect()
}

fn told(d: &Daemon, wanted: &Config, steps: &[Step], there: &There, dry_run: bool) -> Applied {
    let goes = |full: &str| steps.iter().filter_map(Step::detaches).any(|gone| gone == full);
    let stays = d.ports.iter().filter(|(full, _)| !goes(full));
    let kept: Vec<String> = stays.filter_map(|(_, record)| Some(record.switch.as_ref()?.name().to_owned())).collect();
    let ports = steps.iter().filter_map(|step| step.change(there));
    let changes: Vec<Change> = settings::changes(d, wanted, &kept).into_iter().chain(ports).collect();
    let unchanged = steps.iter().filter(|step| matches!(step, Step::Keep(_))).count() as u32;
    Applied { dry_run, changes, unchanged }
}
