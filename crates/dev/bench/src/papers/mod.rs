//! `netvale-bench papers`: repeats the experiments of the documents whose designs netvale implements, and writes a page
//! with published and measured values.
//!
//! ```text
//!   figures ──► cases of scenarios, with peers ──► runner ──► kept: a file a figure ──► page
//!   published: the printed values ─────────────────────────────────────────────────────────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `figures` | the experiments, one constant for each experiment |
//! | `published` | the values that the documents print |
//! | `shapes` | relations between values that must hold on every machine |
//! | `table` | a figure's table of published and measured values |
//! | `drawing` | a table's plot |
//! | `kept` | the results so far, in files |
//! | `page` | the page |
//! | `readme` | README's table of some figures |
//! | `versions` | the table of netvale's releases, with their rates |

mod drawing;
mod figures;
mod kept;
mod page;
mod published;
mod readme;
mod shapes;
mod table;
mod versions;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::case::Case;
use crate::contender::Contender;
use crate::error::{BenchError, Result};
use crate::measure::{Measure, Plan};
use crate::progress::Progress;
use crate::runner::{HeldSessions, run_case};
use crate::scenarios::{self, Scenario};
use crate::sys::scratch;
use crate::{interrupt, pin, rivals};

use figures::PaperFigure;
use kept::Kept;
use versions::VersionTable;

/// The options of `netvale-bench papers`.
#[derive(Args, Clone, Debug)]
pub struct Papers {
    /// Figures by number (2.1), or all of a document (2); default: all.
    #[arg(value_name = "NUMBER")]
    numbers: Vec<String>,

    /// Discard the earlier results of these figures and measure again.
    #[arg(long)]
    again: bool,

    /// Make short runs: of the cases that show a figure's shapes, and of one case of every figure without shapes. Print
    /// the page instead of writing it, and keep no results.
    #[arg(long)]
    quick: bool,

    /// List the figures, with the estimated time of each.
    #[arg(long)]
    list: bool,

    /// Append the rates of figure 4.3 to the table of netvale's versions, as the row of VERSION.
    #[arg(long, value_name = "VERSION", requires = "again", conflicts_with_all = ["quick", "list"])]
    release: Option<String>,

    /// The file with the table of netvale's versions.
    #[arg(long, value_name = "FILE", default_value = "docs/papers/pvp-by-version.tsv")]
    versions: PathBuf,

    /// Folder of the results so far.
    #[arg(long, value_name = "DIR", default_value = "target/papers")]
    results: PathBuf,

    /// The page to write.
    #[arg(long, value_name = "FILE", default_value_os_t = PathBuf::from("docs").join("papers.md"))]
    page: PathBuf,

    /// The README whose table of figures to replace, if it has one.
    #[arg(long, value_name = "FILE", default_value = "README.md")]
    readme: PathBuf,
}

/// A figure with its results.
pub struct FigureResults {
    /// The figure.
    pub figure: &'static PaperFigure,
    /// Whether to measure the figure. Figures that are not measured are drawn from earlier results.
    is_chosen: bool,
    /// The results so far.
    pub kept: Kept,
}

/// The peers, and the settings of the measurements.
struct PapersPlan {
    peers: Vec<Contender>,
    plan: Plan,
    /// Whether to measure only the cases that [`shorten`] keeps.
    quick: bool,
}

impl Papers {
    /// Refuses `--release` if the figure with its rates is not measured.
    fn check(&self, figures: &[&PaperFigure]) -> Result<()> {
        if self.release.is_some() && figures.iter().all(|figure| figure.number != versions::FIGURE) {
            return Err(BenchError::Usage(format!("--release requires figure {}", versions::FIGURE)));
        }
        Ok(())
    }

    /// Appends the row that `--release` requests, if it is set. Returns the table of versions.
    fn versions(&self, all: &[FigureResults]) -> Result<VersionTable> {
        for one in all.iter().filter(|one| one.figure.number == versions::FIGURE) {
            if let Some(version) = &self.release {
                versions::append(&self.versions, version, &page::machine(), &one.kept)?;
            }
        }
        VersionTable::read(&self.versions)
    }
}

/// A case to measure, and the contenders that the figure shows for this case.
struct PlanStep {
    scenario: &'static Scenario,
    case: Case,
    contenders: Vec<&'static str>,
    /// Time for setting up one contender, in seconds.
    setup: u32,
}

impl PlanStep {
    fn peers<'a>(&'a self, all: &'a [Contender]) -> impl Iterator<Item = &'a Contender> {
        all.iter().filter(move |peer| self.contenders.contains(&peer.name) && peer.fits(&self.case))
    }

    /// Returns the estimated time to measure the case.
    fn time(&self, all: &[Contender], plan: Plan) -> Duration {
        let contenders = 1 + self.peers(all).count() as u32;
        // Twice the length of the runs, because some runs are repeated, and each contender must stop and settle.
        let runs = plan.window * 2 * plan.runs as u32;
        contenders * (Duration::from_secs(self.setup.into()) + plan.warm_up + runs)
    }
}

/// Returns the cases of a figure. With `quick`, returns only the cases that show the figure's shapes, with the
/// contenders that the shapes compare; if the figure has no shapes, only the first case.
fn steps(figure: &PaperFigure, quick: bool) -> Result<Vec<PlanStep>> {
    let mut steps = Vec::new();
    for run in figure.runs {
        for scenario in scenarios::named(&[run.scenario.to_owned()])? {
            let cases = scenario.cases(&Measure::default()).into_iter();
            let step = |case: Case| {
                let contenders = figure.contenders(&case.variant);
                PlanStep { scenario, case, contenders, setup: run.setup }
            };
            steps.extend(cases.map(step).filter(|step| !step.contenders.is_empty()));
        }
    }
    if quick {
        shorten(figure.number, &mut steps);
    }
    Ok(steps)
}

fn shorten(figure: &str, steps: &mut Vec<PlanStep>) {
    if shapes::of_figure(figure).next().is_none() {
        steps.truncate(1);
        steps.iter_mut().for_each(|step| step.contenders.clear());
        return;
    }
    steps.retain_mut(|step| {
        let of_case = || shapes::of_figure(figure).filter(|shape| shape.takes(&step.case));
        let is_wanted = of_case().next().is_some();
        let compared: Vec<_> = of_case().flat_map(|shape| shape.contenders).collect();
        step.contenders.retain(|peer| compared.contains(&peer));
        is_wanted
    });
}

/// Measures the chosen figures, and writes the page. Returns whether all measured shapes hold.
pub fn run(options: &Papers, out: &mut dyn Write) -> Result<bool> {
    let chosen = page::chosen(&options.numbers)?;
    options.check(&chosen)?;
    let measure = Measure { runs: 5, seconds: 0.5, ..Measure::default() };
    let plan = PapersPlan { peers: rivals::all(), plan: measure.plan(options.quick)?, quick: options.quick };
    if options.list {
        return plan.list(&chosen, out).map(|()| true);
    }
    let quick = options.quick.then(|| scratch("papers")).transpose()?;
    let folder = quick.as_ref().map_or(&*options.results, |quick| quick.path());
    let mut all = Vec::new();
    for figure in figures::ALL {
        let is_chosen = chosen.iter().any(|one| one.number == figure.number);
        let kept = Kept::open(folder, figure.number, options.again && is_chosen)?;
        all.push(FigureResults { figure, is_chosen, kept });
    }
    plan.measure(&mut all, out)?;
    if options.quick {
        all.retain(|one| one.is_chosen);
    }
    let text = page::render(&all, &page::machine(), &options.versions(&all)?);
    if options.quick {
        say(out, format_args!("{text}"))?;
    } else {
        page::write(&options.page, &text, &all)?;
        readme::update(&options.readme, &all)?;
        say(out, format_args!("{}", options.page.display()))?;
    }
    let judged = all.iter().flat_map(|one| shapes::judged(one.figure.number, &one.kept));
    let broken: Vec<_> = judged.filter(|(_, holds)| !holds).map(|(shape, _)| shape).collect();
    broken.iter().try_for_each(|shape| say(out, format_args!("{}: not confirmed: {}", shape.figure, shape.says)))?;
    Ok(broken.is_empty())
}

impl PapersPlan {
    /// Measures the cases that have no results. After that, measures the cases that other work disturbed once more.
    fn measure(&self, all: &mut [FigureResults], out: &mut dyn Write) -> Result<()> {
        let cpus = pin::choose(&[], 2)?;
        let _guard = interrupt::Guard::install()?;
        let again = (self.plan.repeats > 0).then_some("to measure again, because other work disturbed them");
        for about in std::iter::once("to measure").chain(again) {
            let todo = self.left(all)?;
            if todo.is_empty() {
                continue;
            }
            let time: Duration = todo.iter().map(|(_, step)| step.time(&self.peers, self.plan)).sum();
            say(out, format_args!("{} cases {about}, in about {} minutes", todo.len(), time.as_secs().div_ceil(60)))?;
            let contenders = todo.iter().map(|(_, step)| 1 + step.peers(&self.peers).count());
            let progress = Progress::new((contenders.sum::<usize>() * self.plan.runs) as u64);
            // Contenders that can also measure the next case are set up only once.
            let mut held = HeldSessions::default();
            for (number, step) in todo {
                let ours = step.scenario.ours();
                let contenders: Vec<&Contender> = std::iter::once(&ours).chain(step.peers(&self.peers)).collect();
                let lines = run_case(&step.case, &contenders, &mut held, false, &cpus, self.plan, &progress)?;
                all[number].kept.add(&step.case, lines)?;
            }
        }
        Ok(())
    }

    /// Returns the cases of chosen figures that have no undisturbed results, each with the index of its figure in
    /// `all`.
    fn left(&self, all: &[FigureResults]) -> Result<Vec<(usize, PlanStep)>> {
        let mut left = Vec::new();
        for (number, one) in all.iter().enumerate().filter(|(_, one)| one.is_chosen) {
            let steps = steps(one.figure, self.quick)?.into_iter().filter(|step| !one.kept.has(&step.case));
            left.extend(steps.map(|step| (number, step)));
        }
        Ok(left)
    }

    fn list(&self, figures: &[&PaperFigure], out: &mut dyn Write) -> Result<()> {
        let mut total = Duration::ZERO;
        for figure in figures {
            let time: Duration = steps(figure, self.quick)?.iter().map(|step| step.time(&self.peers, self.plan)).sum();
            total += time;
            say(out, format_args!("{:5} {:3} min  {}", figure.number, time.as_secs().div_ceil(60), figure.title))?;
        }
        say(out, format_args!("all   {:3} min", total.as_secs().div_ceil(60)))
    }
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").map_err(BenchError::io("writing"))
}
