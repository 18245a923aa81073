//! A page for the browser: switches, ports, rates, drops, workers and rings, live, and captures to download.
//!
//! Without the [`token`], a browser gets only the page's files, which are the same for every user. All figures need the
//! token, and the [`guard`] checks that each request is sent to this server and by its own page. Nothing here changes
//! the daemon: counters and ports are read over one connection each, for any number of browsers, and a capture is a
//! monitor like those of `netvale dump`.
//!
//! | module | what it is |
//! |---|---|
//! | [`token`] | the secret that a browser presents |
//! | [`guard`] | decides which requests are answered |
//! | [`assets`] | the page's files, compiled in |
//! | [`ports`] | the daemon's ports, and the details of one, briefly cached |
//! | [`capture`] | captures: parameters, limits, maximum number |
//! | [`page`] | the handler: returns the answer for each path |

pub mod assets;
pub mod capture;
pub mod guard;
pub mod page;
pub mod ports;
pub mod token;
