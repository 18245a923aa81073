//! Imports common to contenders and scenarios.

pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::Command;
pub(crate) use std::rc::Rc;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use netvale::{Interest, Options, Port};
pub(crate) use netvale_control::types::PortOptions;
pub(crate) use serde::{Deserialize, Serialize};

pub(crate) use crate::case::{Case, P99, Unit};
pub(crate) use crate::contender::{Contender, Cores, Sample, Session, contenders};
pub(crate) use crate::counted::{CountOptions, ProcessSet, SETTLE, Tally, received};
pub(crate) use crate::disturb::{Disturbance, Watch, threads_named};
pub(crate) use crate::error::{BenchError, Result, Skip};
pub(crate) use crate::sys::child::{self, Child};
pub(crate) use crate::sys::netns::Netns;
pub(crate) use crate::sys::part::{Part, Parts, ThisProcess};
pub(crate) use crate::sys::threads::{Done, Job, Round, run_pinned, run_pinned_with, total_rate};
pub(crate) use crate::sys::worker::{Context, FRAMES, WRONG, Worker, Wrapper, publish};
pub(crate) use crate::sys::{self, NETWORKS, Need, Needs, ONE, TWO, need};
pub(crate) use crate::{interrupt, pin};
