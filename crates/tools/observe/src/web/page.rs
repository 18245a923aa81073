//! The handler of the *page*, which returns the answer for each URL path.

use std::sync::Arc;

use crate::http::answer::{HttpAnswer, HttpStatus};
use crate::http::handler::HttpHandler;
use crate::http::head::{Method, RequestHead};
use crate::http::hosts::ServerNames;
use crate::source::{Figures, FiguresSource};
use crate::web::assets;
use crate::web::capture::{WebCapture, WebCaptures};
use crate::web::flows::WebFlows;
use crate::web::guard::WebGuard;
use crate::web::ports::WebPorts;

const JSON: &str = "application/json";

/// Header fields of every answer. With them, the browser loads only the page's own files, runs no inline code, lets no
/// other site frame or read the page, and converts no text into elements.
const PROTECTION: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n";

/// The handler that serves the page's files, its figures and captures.
pub struct WebPage {
    /// The server's host names.
    pub hosts: ServerNames,
    /// Decides which requests are answered.
    pub guard: WebGuard,
    /// The source of all counters.
    pub source: FiguresSource,
    /// The daemon's ports.
    pub ports: WebPorts,
    /// The gateways' open flows.
    pub flows: WebFlows,
    /// Captures of the ports.
    pub captures: WebCaptures,
}

impl HttpHandler for WebPage {
    fn hosts(&self) -> &ServerNames {
        &self.hosts
    }

    fn answer(&self, head: &RequestHead) -> HttpAnswer {
        let answer = if head.path.starts_with("/api/") { self.figures(head) } else { self.file(head) };
        answer.unwrap_or_else(|(status, why)| HttpAnswer::only(status, &why)).with(PROTECTION)
    }
}

/// An answer, or the status and the reason of a refusal.
type PageResult = Result<HttpAnswer, (HttpStatus, String)>;

impl WebPage {
    fn file(&self, head: &RequestHead) -> PageResult {
        self.guard.page(head).map_err(refused)?;
        assets::at(&head.path).ok_or((HttpStatus::NotFound, "no such page".into()))
    }

    fn figures(&self, head: &RequestHead) -> PageResult {
        self.guard.figures(head).map_err(refused)?;
        match head.path.as_str() {
            "/api/stats" => Ok(json(self.counters()?.json())),
            "/api/ports" => self.ports.list().map(json),
            "/api/port" => {
                let name = head.parameter("name").ok_or((HttpStatus::BadRequest, "name is missing".to_owned()))?;
                self.ports.one(&name).map(json)
            }
            "/api/flows" => Ok(json(self.flows.list())),
            "/api/capture" => self.capture(head),
            _ => Err((HttpStatus::NotFound, "no such page".into())),
        }
    }

    fn counters(&self) -> Result<Arc<Figures>, (HttpStatus, String)> {
        self.source.figures().map_err(|_| (HttpStatus::Unavailable, "the daemon does not answer".to_owned()))
    }

    /// Begins a capture. HEAD is refused, and so is a port that the daemon does not list: its name could be the name of
    /// an interface of the host.
    fn capture(&self, head: &RequestHead) -> PageResult {
        if head.method == Method::Head {
            return Err((HttpStatus::MethodNotAllowed, "a capture needs GET".into()));
        }
        let capture = WebCapture::asked(head).map_err(|why| (HttpStatus::BadRequest, why.to_owned()))?;
        if !self.counters()?.stats().ports.iter().any(|port| port.name == capture.port) {
            return Err((HttpStatus::NotFound, "no such port".into()));
        }
        tracing::info!("capturing {}", capture.port);
        self.captures.begin(&capture)
    }
}

fn json(text: Arc<str>) -> HttpAnswer {
    HttpAnswer::page(JSON, text)
}

fn refused(status: HttpStatus) -> (HttpStatus, String) {
    let why = match status {
        HttpStatus::Forbidden => "the request is not from the page's own origin",
        HttpStatus::Unauthorized => "the token is missing or wrong",
        _ => "",
    };
    (status, why.to_owned())
}
