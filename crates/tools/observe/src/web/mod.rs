//! A page for the browser: switches, ports, rates, drops, workers and rings, live, and captures to download.
//!
//! Without the [`token`], a browser gets only the page's files, which are the same for every user. Requests for figures
//! need the token, and the [`guard`] checks that each request comes from this server's own page. Nothing here changes
//! the daemon's state: counters and ports are read over one connection each, for any number of browsers, and a capture
//! is a monitor port like that of `netvale dump`.
//!
//! | module | what it is |
//! |---|---|
//! | [`token`] | the secret that a browser must send |
//! | [`guard`] | decides which requests are answered |
//! | [`assets`] | the page's files, compiled in |
//! | [`ports`] | the daemon's ports, and the details of one, briefly cached |
//! | [`flows`] | the gateways' open flows, briefly cached |
//! | [`capture`] | captures: parameters, limits, maximum number |
//! | [`page`] | the handler, which returns the answer for each URL path |

pub mod assets;
pub mod capture;
pub mod flows;
pub mod guard;
pub mod page;
pub mod ports;
pub mod token;
