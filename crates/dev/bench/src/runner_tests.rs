//! Tests of the runner with simulated contenders.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::disturb::Disturbance;
use crate::record::tests::sample;
use crate::sys::child::Child;
use crate::sys::part::Part;
use crate::sys::{Needs, ONE, TWO};

type Diary = Rc<RefCell<Vec<String>>>;

/// A part of a set-up that records the calls it gets.
struct Pretence {
    name: &'static str,
    diary: Diary,
}

impl Pretence {
    fn note(&self, what: &str) -> Result<()> {
        self.diary.borrow_mut().push(format!("{} {what}", self.name));
        Ok(())
    }
}

impl Part for Pretence {
    fn children(&self) -> Vec<&Child> {
        Vec::new()
    }
    fn thaw(&self) -> Result<()> {
        self.note("wakes")
    }
    fn freeze(&self) -> Result<()> {
        self.note("sleeps")
    }
}

impl Drop for Pretence {
    fn drop(&mut self) {
        let _ = self.note("is taken down");
    }
}

/// Creates a contender that records the calls it gets, returns `values` in turn, is disturbed in its first `disturbed`
/// attempts, and fails at the given step.
fn pretends(name: &'static str, diary: &Diary, values: &[f64], disturbed: usize, fails: &'static str) -> Contender {
    let diary = Rc::clone(diary);
    let values = values.to_vec();
    let needs: Needs = if fails == "available" { &[TWO] } else { &[ONE] };
    Contender::new(
        name,
        "pretends",
        needs,
        |_| true,
        move |_, _| {
            if fails == "start" {
                return Err(BenchError::NoTraffic(name.into()));
            }
            let own = Rc::clone(&diary);
            let mut values = values.clone().into_iter().cycle();
            let mut disturbed = disturbed;
            let measuring = move |_| {
                let foreign_percent = if disturbed > 0 { 50.0 } else { 0.0 };
                disturbed = disturbed.saturating_sub(1);
                if fails == "measure" && own.borrow().len() > 4 {
                    return Err(BenchError::NoTraffic(name.into()));
                }
                let beside = Disturbance { foreign_percent, ..Disturbance::default() };
                Ok(Sample::new(values.next().unwrap_or(0.0), beside))
            };
            Ok(Session::new("none", false, measuring).with(&Rc::new(Pretence { name, diary: Rc::clone(&diary) })))
        },
    )
}

fn pretender(name: &'static str, diary: &Diary, values: &[f64]) -> Contender {
    pretends(name, diary, values, 0, "")
}

fn run(contenders: &[&Contender], alone: bool) -> Vec<Line> {
    let plan = Plan { runs: 3, window: Duration::ZERO, warm_up: Duration::ZERO, repeats: 5 };
    run_case(&sample(None).case, contenders, &mut HeldSessions::default(), alone, &[0], plan, &Progress::new(1))
        .expect("no interrupt")
}

fn only_record(lines: &[Line]) -> &Record {
    match lines {
        [Line::Record(record)] => record,
        other => panic!("one record, not {other:?}"),
    }
}

/// Objective: runs alternate, only one contender runs at a time, the ratio is computed from the medians, and all parts
/// of the set-ups are dropped at the end.
#[test]
fn runs_are_interleaved_and_compared_by_medians() {
    let diary = Diary::default();
    // The first value of each contender belongs to its warm-up.
    let ours = pretender("ours", &diary, &[1.0, 20.0, 30.0, 10.0]);
    let peer = pretender("peer", &diary, &[1.0, 10.0, 9.0, 11.0]);
    let lines = run(&[&ours, &peer], false);
    let record = only_record(&lines);
    assert_eq!((record.summary.median, record.summary.min, record.summary.max), (20.0, 10.0, 30.0));
    let against = record.against.as_ref().expect("a peer ran");
    assert_eq!((against.peer_median, against.ratio), (10.0, Some(2.0)));
    let diary = diary.borrow();
    let expected = ["ours wakes", "ours sleeps", "peer wakes", "peer sleeps"];
    assert!(diary.iter().take(16).map(String::as_str).eq(expected.iter().copied().cycle().take(16)), "{diary:?}");
    assert_eq!(diary.iter().filter(|line| line.ends_with("taken down")).count(), 2);
}

/// Objective: a disturbed attempt is repeated and does not count; a run whose attempts are all disturbed is kept and
/// marked.
#[test]
fn disturbed_runs_are_repeated() {
    let diary = Diary::default();
    let twice = pretends("ours", &diary, &[1.0, 2.0, 3.0, 40.0, 50.0, 60.0], 3, "");
    let lines = run(&[&twice], false);
    let record = only_record(&lines);
    assert_eq!((record.summary.median, record.summary.min, record.disturbed), (50.0, 40.0, false));
    let always = pretends("ours", &diary, &[7.0], usize::MAX, "");
    let lines = run(&[&always], false);
    assert!(only_record(&lines).disturbed);
    assert_eq!(only_record(&lines).summary.runs, 3);
}

/// Objective: a peer that is unavailable, does not start or fails midway is skipped with its reason; netvale continues.
#[test]
fn failing_peers_are_skipped() {
    for fails in ["available", "start", "measure"] {
        let diary = Diary::default();
        let ours = pretender("ours", &diary, &[5.0]);
        let peer = pretends("peer", &diary, &[5.0], 0, fails);
        let lines = run(&[&ours, &peer], false);
        let [Line::Skipped(skipped), Line::Record(record)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(skipped.contender, "peer");
        assert!(!skipped.skipped.is_empty());
        assert_eq!((record.summary.runs, &record.against), (3, &None));
        let started = usize::from(fails == "measure");
        assert_eq!(diary.borrow().iter().filter(|line| *line == "peer is taken down").count(), started);
    }
}

/// Objective: when contenders are measured alone, each has a record under its own name.
#[test]
fn each_contender_alone_gets_its_own_record() {
    let diary = Diary::default();
    let one = pretender("one", &diary, &[1.0]);
    let two = pretender("two", &diary, &[2.0]);
    let lines = run(&[&one, &two], true);
    let name = |line: &Line| match line {
        Line::Record(record) => record.contender.clone(),
        Line::Skipped(skipped) => panic!("{skipped:?}"),
    };
    let names: Vec<String> = lines.iter().map(name).collect();
    assert_eq!(names, ["one", "two"]);
}

/// Objective: if netvale fails, no peer takes its place: each peer has a record of its own.
#[test]
fn failing_ours_leaves_peers_alone() {
    let diary = Diary::default();
    let ours = pretends("ours", &diary, &[5.0], 0, "start");
    let one = pretender("one", &diary, &[1.0]);
    let two = pretender("two", &diary, &[2.0]);
    let lines = run(&[&ours, &one, &two], false);
    let [Line::Skipped(skipped), Line::Record(first), Line::Record(second)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (skipped.contender.as_str(), first.contender.as_str(), second.contender.as_str()),
        ("ours", "one", "two")
    );
    assert!(first.against.is_none() && second.against.is_none());
}

/// Objective: a session that can also measure the next case is kept for that case; a session that cannot measure it, or
/// whose contender does not take part, is dropped.
#[test]
fn sessions_go_on() {
    let starts = Rc::new(Cell::new(0));
    let counted = Rc::clone(&starts);
    let turning = Contender::new(
        "ours",
        "pretends",
        &[ONE],
        |_| true,
        move |_, _| {
            counted.set(counted.get() + 1);
            let session = Session::new("none", false, |_| Ok(Sample::new(1.0, Disturbance::default())));
            Ok(session.turning(|case| case.variant == "touched"))
        },
    );
    let other = pretender("other", &Diary::default(), &[1.0]);
    let plan = Plan { runs: 1, window: Duration::ZERO, warm_up: Duration::ZERO, repeats: 5 };
    let mut held = HeldSessions::default();
    let steps = [("touched", &turning, 1), ("touched", &turning, 1), ("untouched", &turning, 2)];
    let more = [("touched", &turning, 2), ("touched", &other, 2), ("touched", &turning, 3)];
    for (variant, who, expected) in steps.into_iter().chain(more) {
        let case = Case { variant: variant.into(), ..sample(None).case };
        let lines = run_case(&case, &[who], &mut held, false, &[0], plan, &Progress::new(1)).expect("no interrupt");
        assert_eq!(only_record(&lines).summary.runs, 1);
        assert_eq!(starts.get(), expected, "{variant}");
    }
}
