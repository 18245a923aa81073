//! The findings of a soak, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::health::ResourceCounts;
use crate::shares::LeastShare;

/// Counts of a kind of attack.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Attacks {
    /// Number of attacks made.
    pub made: u64,
    /// Number of attacks that took hold; others were too late, or were refused.
    pub took_hold: u64,
    /// Number of attackers that were killed with SIGKILL.
    pub killed: u64,
    /// Duration of the longest attack in milliseconds. An attack that waits for the daemon's answer includes that wait.
    pub longest_ms: u64,
}

/// Counts of a flow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowCounts {
    /// Names of the pair and of the flow.
    pub name: String,
    /// Frames sent.
    pub sent: u64,
    /// Frames received in order and intact.
    pub received: u64,
    /// Frames that did not arrive; the daemon must have counted all of them as dropped.
    pub lost: u64,
    /// Frames that were out of order or duplicate.
    pub disordered: u64,
    /// Whether attackers also receive these frames, and may have sent them again, altered.
    pub is_sent_again: bool,
    /// Frames from before a restart.
    pub stale: u64,
    /// The longest time without a frame, in milliseconds.
    pub longest_pause_ms: u64,
    /// The longest wait above 100 ms in which no frame was dropped, less the time that the machine took from the
    /// daemons; in milliseconds.
    pub longest_wait_ms: u64,
}

/// A daemon's resources at the first and the last rest (a pause without attacks) of one of its lives (from a start to
/// an end of its process).
#[derive(Clone, Debug, Serialize)]
pub struct LifeResources {
    /// Name of the daemon.
    pub daemon: String,
    /// When the life ended, in seconds since the start of the soak.
    pub ended_at: u64,
    /// Why the life ended.
    pub ended_by: String,
    /// Number of rests that were compared with the first rest.
    pub rests: u64,
    /// The daemon's resources at the first rest.
    pub first: ResourceCounts,
    /// The daemon's resources at the last rest.
    pub last: ResourceCounts,
}

/// All findings of a soak.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SoakReport {
    /// The seed of all random choices.
    pub seed: u64,
    /// The soak's duration in seconds.
    pub seconds: u64,
    /// Counts of attacks, by name.
    pub attacks: BTreeMap<String, Attacks>,
    /// For each attack, the bystander with the smallest part of its fair share.
    pub least: BTreeMap<String, LeastShare>,
    /// Counts of the bystanders' flows.
    pub flows: Vec<FlowCounts>,
    /// Number of damaged frames.
    pub corrupt: u64,
    /// Number of damaged frames of bystanders whose frames attackers receive and may send again, altered.
    pub sent_again: u64,
    /// Descriptions of each pair's first damaged frames.
    pub damages: Vec<String>,
    /// The daemons' lives.
    pub lives: Vec<LifeResources>,
    /// For each kill of a daemon, the milliseconds until all ports worked again.
    pub back_after_ms: Vec<u64>,
    /// States of the daemons' threads during long waits of bystanders.
    pub stalls: Vec<String>,
    /// Checks that cannot run here, with the reason.
    pub left_out: BTreeMap<String, String>,
    /// Violations: empty in a clean soak.
    pub failures: Vec<String>,
}

impl SoakReport {
    /// Returns whether there was no violation.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// Returns a summary in one line.
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

    /// Returns the whole report in Markdown.
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
        for LifeResources { daemon, ended_at, ended_by, rests, first: a, last: b } in &self.lives {
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
        self.left_out.iter().for_each(|(what, why)| line(format_args!("Not tested: {what}: {why}.")));
        self.failures.iter().for_each(|failure| line(format_args!("FAILED: {failure}")));
        text
    }
}
