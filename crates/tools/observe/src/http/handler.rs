//! A *handler*: turns requests into answers.

use crate::http::answer::Answer;
use crate::http::head::Head;
use crate::http::hosts::ServerNames;

/// Answers requests, several at a time.
pub trait Handler: Send + Sync {
    /// Its host names: requests to other hosts do not reach it.
    fn hosts(&self) -> &ServerNames;

    /// Answers a request.
    fn answer(&self, head: &Head) -> Answer;
}
