//! The page `/metrics`.

use crate::http::answer::{HttpAnswer, HttpStatus};
use crate::http::handler::HttpHandler;
use crate::http::head::RequestHead;
use crate::http::hosts::ServerNames;
use crate::metrics::format::TextFormat;
use crate::source::FiguresSource;

/// Path of the page.
pub const PATH: &str = "/metrics";

/// The page at `/`, with a link to the metrics.
const ROOT: &str =
    "<!doctype html><title>netvale</title><p>netvale: <a href=\"/metrics\">/metrics</a> for Prometheus</p>\n";

/// The handler that serves the metrics at `/metrics`, and a link to them at `/`.
#[derive(Debug)]
pub struct MetricsPage {
    /// The server's host names.
    pub hosts: ServerNames,
    /// The source of all counters.
    pub source: FiguresSource,
}

impl HttpHandler for MetricsPage {
    fn hosts(&self) -> &ServerNames {
        &self.hosts
    }

    fn answer(&self, head: &RequestHead) -> HttpAnswer {
        if head.path == "/" {
            return HttpAnswer::page("text/html; charset=utf-8", ROOT);
        }
        if head.path != PATH {
            return HttpAnswer::only(HttpStatus::NotFound, "no such page; the metrics are at /metrics");
        }
        let format = TextFormat::accepted(head.all("accept"));
        match self.source.figures() {
            Ok(figures) => HttpAnswer::page(format.content_type(), figures.text(format)),
            // The reason is logged; clients do not see it.
            Err(_) => HttpAnswer::only(HttpStatus::Unavailable, "the daemon does not answer"),
        }
    }
}
