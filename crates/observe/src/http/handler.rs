//! A *handler*: what makes answers out of requests.

use crate::http::answer::Answer;
use crate::http::head::Head;

/// Answers requests, several at a time.
pub trait Handler: Send + Sync {
    /// Answers a request.
    fn answer(&self, head: &Head) -> Answer;
}
