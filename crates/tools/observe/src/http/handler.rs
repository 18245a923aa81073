//! A *handler* turns requests into answers.

use crate::http::answer::HttpAnswer;
use crate::http::head::RequestHead;
use crate::http::hosts::ServerNames;

/// The code that answers requests, which several threads may call at the same time.
pub trait HttpHandler: Send + Sync {
    /// Returns the server's host names: requests for other hosts do not reach the handler.
    fn hosts(&self) -> &ServerNames;

    /// Answers a request.
    fn answer(&self, head: &RequestHead) -> HttpAnswer;
}
