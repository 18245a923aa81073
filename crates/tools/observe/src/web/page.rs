//! The *page*: the answer for each path.

use crate::http::answer::{Answer, Status};
use crate::http::handler::Handler;
use crate::http::head::{Head, Method};
use crate::http::hosts::ServerNames;
use crate::source::Source;
use crate::web::assets;
use crate::web::capture::{Capture, Captures};
use crate::web::guard::Guard;
use crate::web::ports::{Ports, Told};

const JSON: &str = "application/json";

/// Sent with every answer: the browser loads only the page's own files, runs nothing inline, lets no other site frame
/// or read the page, and turns no text into elements.
const PROTECTION: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n";

/// Serves the page, its figures and captures.
pub struct WebPage {
    /// Its host names.
    pub hosts: ServerNames,
    /// Decides which requests are answered.
    pub guard: Guard,
    /// All counters.
    pub source: Source,
    /// The ports.
    pub ports: Ports,
    /// Captures of the ports.
    pub captures: Captures,
}

impl Handler for WebPage {
    fn hosts(&self) -> &ServerNames {
        &self.hosts
    }

    fn answer(&self, head: &Head) -> Answer {
        let answer = if head.path.starts_with("/api/") { self.figures(head) } else { self.file(head) };
        answer.unwrap_or_else(|(status, why)| Answer::only(status, &why)).with(PROTECTION)
    }
}

/// An answer, or status and reason of a refusal.
type Outcome = Result<Answer, (Status, String)>;

impl WebPage {
    fn file(&self, head: &Head) -> Outcome {
        self.guard.page(head).map_err(refused)?;
        assets::at(&head.path).ok_or((Status::NotFound, "there is no such page".into()))
    }

    fn figures(&self, head: &Head) -> Outcome {
        self.guard.figures(head).map_err(refused)?;
        match head.path.as_str() {
            "/api/stats" => self.stats().map(json),
            "/api/ports" => self.ports.list().map(json),
            "/api/port" => {
                let name = head.parameter("name").ok_or((Status::BadRequest, "name is missing".to_owned()))?;
                self.ports.one(&name).map(json)
            }
            "/api/capture" => self.capture(head),
            _ => Err((Status::NotFound, "there is no such page".into())),
        }
    }

    fn stats(&self) -> Told {
        let figures = self.source.figures();
        figures.map(|figures| figures.json()).map_err(|_| (Status::Unavailable, "the daemon does not answer".into()))
    }

    /// Begins a capture: GET only, of a port that the daemon has; any other name could be an interface of the host.
    fn capture(&self, head: &Head) -> Outcome {
        if head.method == Method::Head {
            return Err((Status::MethodNotAllowed, "a capture has a body".into()));
        }
        let capture = Capture::asked(head).map_err(|why| (Status::BadRequest, why.to_owned()))?;
        let figures =
            self.source.figures().map_err(|_| (Status::Unavailable, "the daemon does not answer".to_owned()))?;
        if !figures.stats().ports.iter().any(|port| port.name == capture.port) {
            return Err((Status::NotFound, "there is no such port".into()));
        }
        tracing::info!("a capture of {} is taken", capture.port);
        self.captures.begin(&capture)
    }
}

fn json(text: std::sync::Arc<str>) -> Answer {
    Answer::page(JSON, text)
}

fn refused(status: Status) -> (Status, String) {
    let why = match status {
        Status::Forbidden => "only its own page may ask",
        Status::Unauthorized => "the token is missing or wrong",
        _ => "",
    };
    (status, why.to_owned())
}
