//! The page `/metrics`.

use crate::http::answer::{Answer, Status};
use crate::http::handler::Handler;
use crate::http::head::Head;
use crate::metrics::format::Format;
use crate::source::Source;

/// Path of the page.
pub const PATH: &str = "/metrics";

/// Serves the page, and no other.
#[derive(Debug)]
pub struct MetricsPage(pub Source);

impl Handler for MetricsPage {
    fn answer(&self, head: &Head) -> Answer {
        if head.path != PATH {
            return Answer::only(Status::NotFound, "there is only /metrics");
        }
        let format = Format::accepted(head.all("accept"));
        match self.0.figures() {
            Ok(figures) => Answer::page(format.content_type(), figures.text(format)),
            // The log has the reason, which is not for everybody who can connect.
            Err(_) => Answer::only(Status::Unavailable, "the daemon does not answer"),
        }
    }
}
