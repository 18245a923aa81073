//! The page `/metrics`.

use crate::http::answer::{Answer, Status};
use crate::http::handler::Handler;
use crate::http::head::Head;
use crate::http::hosts::ServerNames;
use crate::metrics::format::Format;
use crate::source::Source;

/// Path of the page.
pub const PATH: &str = "/metrics";

/// The page at `/`, for a browser given the bare address.
const ROOT: &str =
    "<!doctype html><title>netvale</title><p>netvale: <a href=\"/metrics\">/metrics</a> for Prometheus</p>\n";

/// Serves the page, and at `/` a link to it.
#[derive(Debug)]
pub struct MetricsPage {
    /// Its host names.
    pub hosts: ServerNames,
    /// All counters.
    pub source: Source,
}

impl Handler for MetricsPage {
    fn hosts(&self) -> &ServerNames {
        &self.hosts
    }

    fn answer(&self, head: &Head) -> Answer {
        if head.path == "/" {
            return Answer::page("text/html; charset=utf-8", ROOT);
        }
        if head.path != PATH {
            return Answer::only(Status::NotFound, "there is only /metrics");
        }
        let format = Format::accepted(head.all("accept"));
        match self.source.figures() {
            Ok(figures) => Answer::page(format.content_type(), figures.text(format)),
            // The reason is logged, not shown to every client.
            Err(_) => Answer::only(Status::Unavailable, "the daemon does not answer"),
        }
    }
}
