//! A *handler*: what makes answers out of requests.

use crate::http::answer::Answer;
use crate::http::head::Head;
use crate::http::hosts::ServerNames;

/// Answers requests, several at a time.
pub trait Handler: Send + Sync {
    /// The hosts that it answers as: requests to others do not get to it.
    fn hosts(&self) -> &ServerNames;

    /// Answers a request.
    fn answer(&self, head: &Head) -> Answer;
}
