//! The runner with contenders that only pretend.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::disturb::Disturbance;
use crate::error::Skip;
use crate::record::tests::sample;

type Diary = Rc<RefCell<Vec<String>>>;

/// A contender that writes down what is asked of it, gives `values` in turn, and is disturbed in its first `disturbed`
/// attempts.
struct Pretender {
    name: &'static str,
    diary: Diary,
    values: Vec<f64>,
    disturbed: usize,
    fails: Option<&'static str>,
}

struct Pretence {
    name: &'static str,
    diary: Diary,
    values: std::iter::Cycle<std::vec::IntoIter<f64>>,
    disturbed: usize,
    fails: bool,
}

impl Contender for Pretender {
    fn name(&self) -> &str {
        self.name
    }
    fn about(&self) -> &str {
        "pretends"
    }
    fn fits(&self, _case: &Case) -> bool {
        true
    }
    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        if self.fails == Some("available") { env.two_cores().map(drop) } else { Ok(()) }
    }
    fn start(&self, _case: &Case, _env: &Env) -> Result<Box<dyn Session>> {
        if self.fails == Some("start") {
            return Err(BenchError::NoTraffic(self.name.into()));
        }
        Ok(Box::new(Pretence {
            name: self.name,
            diary: Rc::clone(&self.diary),
            values: self.values.clone().into_iter().cycle(),
            disturbed: self.disturbed,
            fails: self.fails == Some("measure"),
        }))
    }
}

impl Session for Pretence {
    fn resume(&mut self) -> Result<()> {
        self.diary.borrow_mut().push(format!("{} wakes", self.name));
        Ok(())
    }
    fn pause(&mut self) -> Result<()> {
        self.diary.borrow_mut().push(format!("{} sleeps", self.name));
        Ok(())
    }
    fn measure(&mut self, _window: Duration) -> Result<Sample> {
        let spoilt = self.disturbed > 0;
        self.disturbed = self.disturbed.saturating_sub(1);
        let beside = Disturbance { foreign_percent: if spoilt { 50.0 } else { 0.0 }, ..Default::default() };
        if self.fails && self.diary.borrow().len() > 4 {
            return Err(BenchError::NoTraffic(self.name.into()));
        }
        Ok(Sample::new(self.values.next().unwrap_or(0.0), beside))
    }
    fn cores(&self) -> String {
        "none".into()
    }
    fn touched(&self) -> bool {
        false
    }
}

impl Drop for Pretence {
    fn drop(&mut self) {
        self.diary.borrow_mut().push(format!("{} is taken down", self.name));
    }
}

fn pretender(name: &'static str, diary: &Diary, values: &[f64]) -> Pretender {
    Pretender { name, diary: Rc::clone(diary), values: values.to_vec(), disturbed: 0, fails: None }
}

fn run(contenders: &[&dyn Contender], alone: bool) -> Vec<Line> {
    let env = Env { cores: vec![0] };
    let plan = Plan { runs: 3, window: Duration::ZERO, warm_up: Duration::ZERO };
    run_case(&sample(None).case, contenders, alone, &env, plan, &Progress::new(1)).expect("no interrupt")
}

fn only_record(lines: &[Line]) -> &Record {
    match lines {
        [Line::Record(record)] => record,
        other => panic!("one record, not {other:?}"),
    }
}

/// Objective: runs alternate, nobody is awake beside another, the ratio is that of the medians, and all is taken down.
#[test]
fn interleaves_and_compares() {
    let diary = Diary::default();
    // The first value of each is the warm-up's.
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

/// Objective: a disturbed attempt is repeated and does not count; one that is always disturbed is kept and marked.
#[test]
fn repeats_disturbed_runs() {
    let diary = Diary::default();
    let mut twice = pretender("ours", &diary, &[1.0, 2.0, 3.0, 40.0, 50.0, 60.0]);
    twice.disturbed = 3;
    let lines = run(&[&twice], false);
    let record = only_record(&lines);
    assert_eq!((record.summary.median, record.summary.min, record.disturbed), (50.0, 40.0, false));
    let mut always = pretender("ours", &diary, &[7.0]);
    always.disturbed = usize::MAX;
    let lines = run(&[&always], false);
    assert!(only_record(&lines).disturbed);
    assert_eq!(only_record(&lines).summary.runs, 3);
}

/// Objective: a peer that is not available, does not start or fails midway is skipped with its reason; ours goes on.
#[test]
fn failing_peers_are_skipped() {
    for fails in ["available", "start", "measure"] {
        let diary = Diary::default();
        let ours = pretender("ours", &diary, &[5.0]);
        let mut peer = pretender("peer", &diary, &[5.0]);
        peer.fails = Some(fails);
        let lines = run(&[&ours, &peer], false);
        let [Line::Skipped(skipped), Line::Record(record)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(skipped.contender, "peer");
        assert!(!skipped.skipped.is_empty());
        assert_eq!((record.summary.runs, &record.against), (3, &None));
        let started = usize::from(fails == "measure");
        assert_eq!(diary.borrow().iter().filter(|line| *line == "peer is taken down").count(), started);
    }
}

/// Objective: measured alone, each contender gets its own record under its own name.
#[test]
fn alone() {
    let diary = Diary::default();
    let (one, two) = (pretender("one", &diary, &[1.0]), pretender("two", &diary, &[2.0]));
    let lines = run(&[&one, &two], true);
    let name = |line: &Line| match line {
        Line::Record(record) => record.contender.clone(),
        Line::Skipped(skipped) => panic!("{skipped:?}"),
    };
    let names: Vec<String> = lines.iter().map(name).collect();
    assert_eq!(names, ["one", "two"]);
}

/// Objective: when our side fails, no peer is taken for us: each stands alone under its own name.
#[test]
fn failing_ours_leaves_peers_alone() {
    let diary = Diary::default();
    let mut ours = pretender("ours", &diary, &[5.0]);
    ours.fails = Some("start");
    let (one, two) = (pretender("one", &diary, &[1.0]), pretender("two", &diary, &[2.0]));
    let lines = run(&[&ours, &one, &two], false);
    let [Line::Skipped(skipped), Line::Record(first), Line::Record(second)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (skipped.contender.as_str(), first.contender.as_str(), second.contender.as_str()),
        ("ours", "one", "two")
    );
    assert!(first.against.is_none() && second.against.is_none());
}
