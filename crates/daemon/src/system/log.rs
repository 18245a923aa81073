//! The log's limit: lines per second about one user, or about one port's peers.
//!
//! The field `uid` of a line identifies its user. A line without `uid` is about the port in the field `at` or `port`. A
//! line with none of these fields is about its call site in the program. The limit does not apply to lines about root
//! and the daemon's own user, nor to the levels `debug` and `trace`, which are written only on request.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::caller::is_trusted_user;

/// The subject of a log line, by which lines are counted and limited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LineSubject {
    User(u32),
    /// The port's name or path.
    Port(String),
    /// A hash of the line's call site in the program.
    Place(u64),
}

/// Number of lines in the current second, by subject.
struct LineCounts {
    since: Instant,
    counts: HashMap<LineSubject, u32>,
}

static LINES: Mutex<Option<LineCounts>> = Mutex::new(None);
/// Maximum number of lines per second about one subject; the number is unlimited until [`set_limit`] is called.
static MOST: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the limit of [`LogLimit`].
pub(crate) fn set_limit(most: u32) {
    MOST.store(most, Ordering::Relaxed);
}

/// A layer of the log's subscriber that drops lines over the limit. The daemon sets the limit at its start.
pub struct LogLimit;

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let most = MOST.load(Ordering::Relaxed);
        let is_asked_for = *event.metadata().level() > Level::INFO;
        most == u32::MAX || is_asked_for || about(event).is_none_or(|about| count(about) <= most)
    }
}

/// Counts a line. Returns the number of lines that had the same subject in this second.
fn count(about: LineSubject) -> u32 {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = lines.get_or_insert_with(|| LineCounts { since: Instant::now(), counts: HashMap::new() });
    let count = lines.counts.entry(about).or_default();
    *count = count.saturating_add(1);
    *count
}

/// Starts the next second if the current second is over, and logs the numbers of dropped lines.
pub(super) fn report() {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_over = lines.as_ref().is_some_and(|lines| lines.since.elapsed() >= Duration::from_secs(1));
    let Some(past) = lines.take_if(|_| is_over) else { return };
    // The lock is released here, because the lines that follow are counted as well.
    drop(lines);
    let most = MOST.load(Ordering::Relaxed);
    for (about, count) in past.counts.into_iter().filter(|(_, count)| *count > most) {
        let left_out = count - most;
        match about {
            LineSubject::User(uid) => tracing::warn!(uid, "{left_out} lines about this user were left out"),
            LineSubject::Port(port) => tracing::warn!(port, "{left_out} lines about this port were left out"),
            LineSubject::Place(_) => tracing::warn!("{left_out} lines from one place in the program were left out"),
        }
    }
}

/// Returns the subject of an event; `None` if no limit applies.
fn about(event: &Event<'_>) -> Option<LineSubject> {
    let mut fields = SubjectFields::default();
    event.record(&mut fields);
    match (fields.user, fields.port) {
        (Some(user), _) if is_trusted_user(user) => None,
        (Some(user), _) => Some(LineSubject::User(user)),
        (None, Some(port)) => Some(LineSubject::Port(port)),
        (None, None) => {
            let mut hasher = DefaultHasher::new();
            event.metadata().callsite().hash(&mut hasher);
            Some(LineSubject::Place(hasher.finish()))
        }
    }
}

/// The fields of an event by which its subject is determined.
#[derive(Default)]
struct SubjectFields {
    user: Option<u32>,
    port: Option<String>,
}

impl Visit for SubjectFields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "uid" {
            self.user = u32::try_from(value).ok();
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "at" | "port") {
            self.port = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "at" | "port") {
            self.port = Some(format!("{value:?}"));
        }
    }
}
