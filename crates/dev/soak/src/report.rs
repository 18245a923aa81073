//! What a soak found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::health::Counts;
use crate::shares::LeastShare;

/// Counts of a kind of attack.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Attacks {
    /// How many were made.
    pub made: u64,
    /// How many took hold: the others came too late, or were refused.
    pub took_hold: u64,
    /// How many ended by SIGKILL.
    pub killed: u64,
    /// How long one lasted at most: what is done to the daemon itself ends only when it has answered.
    pub longest_ms: u64,
}

/// Counts of a flow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowCounts {
    /// Pair and flow.
    pub name: String,
    /// Frames sent.
    pub sent: u64,
    /// Frames that came, in order and whole.
    pub received: u64,
    /// Frames that did not come, all of which the daemon had counted as dropped.
    pub lost: u64,
    /// Frames out of order, or twice.
    pub disordered: u64,
    /// Whether attackers get them, too, and may have sent such frames.
    pub is_sent_again: bool,
    /// Frames from before a restart.
    pub stale: u64,
    /// The longest time without a frame, in milliseconds.
    pub longest_pause_ms: u64,
    /// The longest one of more than 100 ms in which nothing was dropped, without what the machine took of it.
    pub longest_wait_ms: u64,
}

/// What a daemon had at the first and at the last rest of its lives.
#[derive(Clone, Debug, Serialize)]
pub struct Life {
    /// Which daemon.
    pub daemon: String,
    /// Seconds since the start.
    pub ended_at: u64,
    /// How it ended.
    pub ended_by: String,
    /// Times that it was compared with the first rest.
    pub rests: u64,
    /// What it had at first.
    pub first: Counts,
    /// What it had at last.
    pub last: Counts,
}

/// All that a soak found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The seed of all that was random.
    pub seed: u64,
    /// How long it took.
    pub seconds: u64,
    /// How often each attack was made, by name.
    pub attacks: BTreeMap<String, Attacks>,
    /// For each attack the bystander that had least of its fair share.
    pub least: BTreeMap<String, LeastShare>,
    /// Flows of bystanders.
    pub flows: Vec<FlowCounts>,
    /// Damaged frames.
    pub corrupt: u64,
    /// The same where attackers get frames of bystanders, and send again what nonsense in their rings makes of them.
    pub sent_again: u64,
    /// What was wrong with the first of each pair.
    pub damages: Vec<String>,
    /// Lives of the daemons.
    pub lives: Vec<Life>,
    /// How long it took until all ports were back after a daemon was killed, in milliseconds.
    pub back_after_ms: Vec<u64>,
    /// What the daemons' threads did while a bystander waited for long.
    pub stalls: Vec<String>,
    /// What could not be done here, and why.
    pub left_out: BTreeMap<String, String>,
    /// What must not be: none in a clean soak.
    pub failures: Vec<String>,
}

impl Report {
    /// Nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// One line about all of it.
    pub fn line(&self) -> String {
        let received: u64 = self.flows.iter().map(|flow| flow.received).sum();
        let attacks: u64 = self.attacks.values().map(|attacks| attacks.made).sum();
        let outcome = if self.is_clean() { "clean".to_owned() } else { format!("{} FAILURES", self.failures.len()) };
        format!(
            "soak: {outcome}; seed {}, {} s, {attacks} attacks, {} restarts, {received} frames of bystanders",
            self.seed,
            self.seconds,
            self.back_after_ms.len()
        )
    }

    /// All of it, in Markdown.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.line());
        let mut line = |words: std::fmt::Arguments<'_>| _ = writeln!(text, "{words}");
        line(format_args!(
            "\n| bystanders | sent | received in order | lost, counted as drops | out of order or twice \
             | longest pause | without the machine's part |"
        ));
        line(format_args!("|---|--:|--:|--:|--:|--:|--:|"));
        for flow in &self.flows {
            let FlowCounts { name, sent, received, lost, disordered, longest_pause_ms, longest_wait_ms, .. } = flow;
            let waits = if *longest_wait_ms == 0 { "–".into() } else { format!("{longest_wait_ms} ms") };
            line(format_args!(
                "| {name} | {sent} | {received} | {lost} | {disordered} | {longest_pause_ms} ms | {waits} |"
            ));
        }
        line(format_args!("\n| attack | made | took hold | killed | longest | least share of a bystander |"));
        line(format_args!("|---|--:|--:|--:|--:|---|"));
        for (name, attacks) in &self.attacks {
            let Attacks { made, took_hold, killed, longest_ms } = attacks;
            let least = self.least.get(name).map_or_else(|| "–".into(), ToString::to_string);
            line(format_args!("| {name} | {made} | {took_hold} | {killed} | {longest_ms} ms | {least} |"));
        }
        line(format_args!(
            "\n| daemon, until | rests | descriptors | threads | shared mappings | own memory, KB | resident, KB |"
        ));
        line(format_args!("|---|--:|--:|--:|--:|--:|--:|"));
        for Life { daemon, ended_at, ended_by, rests, first: a, last: b } in &self.lives {
            line(format_args!(
                "| {daemon}, {ended_by} at {ended_at} s | {rests} | {} → {} | {} → {} | {} → {} | {} → {} | {} → {} |",
                a.descriptors.all(),
                b.descriptors.all(),
                a.threads.all(),
                b.threads.all(),
                a.mappings.all(),
                b.mappings.all(),
                a.own_kb,
                b.own_kb,
                a.resident_kb,
                b.resident_kb
            ));
        }
        let slowest = self.back_after_ms.iter().max().copied().unwrap_or_default();
        line(format_args!(
            "\nDamaged frames: {}, and {} that attackers sent again. All ports back after a kill within {slowest} ms.",
            self.corrupt, self.sent_again
        ));
        self.damages.iter().for_each(|damage| line(format_args!("Damaged: {damage}.")));
        self.stalls.iter().for_each(|stall| line(format_args!("Stalled {stall}.")));
        self.left_out.iter().for_each(|(what, why)| line(format_args!("Left out: {what}: {why}.")));
        self.failures.iter().for_each(|failure| line(format_args!("FAILED: {failure}")));
        text
    }
}
