//! `netvale top`: rates, live.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_control::client::Client;
use netvale_control::types::AllStats;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::ctx::Daemon;
use crate::error::Kind;
use crate::{CliError, Ctx, out, values};

mod drops;
mod latency;
mod screen;
mod state;
mod text;
mod views;
mod workers;

use state::State;

/// Watch rates live.
///
/// Packets and bits per second for each port, drops, kicks per packet, and how busy the workers are. Keys: q quits, s
/// changes the sorting, p pauses, up and down scroll. 1 to 5, or tab, choose what is shown: ports; drops by reason;
/// what workers do with their time; the rings of a port (left and right: other ports); how long frames take, if the
/// daemon times some (latency_sampling). With --batch it prints plain text, for scripts, files and pagers.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds between two updates.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = values::seconds)]
    pub delay: f64,

    /// Plain text instead of the screen.
    #[arg(short, long)]
    pub batch: bool,

    /// Stop after this many updates.
    #[arg(short = 'n', long = "iterations", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,

    /// Column to sort by.
    #[arg(short, long, value_enum, value_name = "KEY", default_value = "rate")]
    pub sort: Sort,

    /// What the screen shows first.
    #[arg(long, value_enum, value_name = "VIEW", default_value = "ports", conflicts_with_all = ["batch", "json"])]
    pub view: View,

    /// Port whose rings are shown first.
    #[arg(long, value_name = "SWITCH:PORT", conflicts_with_all = ["batch", "json"])]
    pub port: Option<String>,

    /// Print each update as a JSON object on a line (implies --batch).
    #[arg(long)]
    pub json: bool,
}

/// The columns that `top` can sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Packets per second, in and out together.
    Rate,
    /// Drops per second.
    Drops,
    /// The port's name.
    Name,
}

/// What the screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// Rates of ports.
    Ports,
    /// Drops by reason.
    Drops,
    /// What workers do with their time.
    Workers,
    /// The rings of a port.
    Rings,
    /// How long frames take.
    Latency,
}

impl View {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            View::Ports => "ports",
            View::Drops => "drops",
            View::Workers => "workers",
            View::Rings => "rings",
            View::Latency => "latency",
        }
    }

    fn next(self) -> View {
        match self {
            View::Ports => View::Drops,
            View::Drops => View::Workers,
            View::Workers => View::Rings,
            View::Rings => View::Latency,
            View::Latency => View::Ports,
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the terminal cannot be used.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut daemon = ctx.daemon()?;
    if args.batch || args.json { batch(args, &mut || daemon.ask(Client::all_stats)) } else { live(args, &mut daemon) }?;
    Ok(ExitCode::SUCCESS)
}

/// The source of readings.
type Read<'a> = dyn FnMut() -> Result<AllStats, CliError> + 'a;

fn batch(args: &Args, read: &mut Read<'_>) -> Result<(), CliError> {
    let mut state = State::new(args.sort);
    state.take(read()?);
    let mut left = args.iterations.unwrap_or(u64::MAX);
    while left > 0 {
        std::thread::sleep(delay(args));
        if !state.take(read()?) {
            continue;
        }
        left -= 1;
        if args.json { out::json(state.rates())? } else { out::text(text::render(&state))? }
    }
    Ok(())
}

fn delay(args: &Args) -> Duration {
    Duration::from_secs_f64(args.delay)
}

fn live(args: &Args, daemon: &mut Daemon) -> Result<(), CliError> {
    if !io::stdout().is_terminal() {
        return Err(CliError::usage("standard output is not a terminal", "add --batch for plain text, or --json"));
    }
    // Read once before the terminal is switched, so that an error is shown normally.
    let stop = crate::signals::stop_flag()?;
    let mut state = State::new(args.sort);
    state.chosen.clone_from(&args.port);
    state.take(daemon.ask(Client::all_stats)?);
    state.show(args.view);
    let mut terminal = ratatui::try_init().map_err(|error| terminal_error(&error))?;
    let result = watch(args, &mut state, daemon, &mut terminal, &stop);
    ratatui::restore();
    result
}

/// Maximum delay until a signal is noticed.
const LOOK: Duration = Duration::from_millis(250);

/// Runs until a key, a signal, or the number of readings ends it.
fn watch(
    args: &Args,
    state: &mut State,
    daemon: &mut Daemon,
    terminal: &mut DefaultTerminal,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let mut left = args.iterations.unwrap_or(u64::MAX);
    // The first figures come soon, the others at the requested interval.
    let mut next = Instant::now() + delay(args).min(Duration::from_millis(200));
    loop {
        terminal.draw(|frame| screen::draw(frame, state)).map_err(|error| terminal_error(&error))?;
        let end = next.min(Instant::now() + LOOK);
        if left == 0 || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        match wait(state, end).map_err(|error| terminal_error(&error))? {
            Next::Quit => return Ok(()),
            Next::Ask => details(state, daemon)?,
            Next::Draw => {}
        }
        if Instant::now() >= next {
            next = Instant::now() + delay(args);
            if !state.paused {
                left -= u64::from(state.take(daemon.ask(Client::all_stats)?));
                details(state, daemon)?;
            }
        }
    }
}

/// Reads the rings of the chosen port, if they are shown.
fn details(state: &mut State, daemon: &mut Daemon) -> Result<(), CliError> {
    if let (View::Rings, Some(name)) = (state.view, &state.chosen) {
        match daemon.ask(|client| client.show(name)) {
            Ok(port) => state.port = Some(port),
            // The port is gone.
            Err(error) if error.kind() == Kind::Refused => state.port = None,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn terminal_error(error: &io::Error) -> CliError {
    CliError::failed(format!("cannot use the terminal: {error}"), "add --batch for plain text")
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Draw,
    /// Another view is shown, whose data must be requested.
    Ask,
    Quit,
}

/// Waits for an event until `end`.
fn wait(state: &mut State, end: Instant) -> io::Result<Next> {
    if !event::poll(end.saturating_duration_since(Instant::now()))? {
        return Ok(Next::Draw);
    }
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(press(state, key)),
        _ => Ok(Next::Draw),
    }
}

fn press(state: &mut State, key: KeyEvent) -> Next {
    /// Number of lines for page up and page down.
    const PAGE: isize = 10;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
        KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
        KeyCode::Char('s') => state.next_sort(),
        KeyCode::Char('p' | ' ') => state.paused = !state.paused,
        KeyCode::Char('1') => return show(state, View::Ports),
        KeyCode::Char('2') => return show(state, View::Drops),
        KeyCode::Char('3') => return show(state, View::Workers),
        KeyCode::Char('4') | KeyCode::Enter => return show(state, View::Rings),
        KeyCode::Char('5') => return show(state, View::Latency),
        KeyCode::Tab => return show(state, state.view.next()),
        KeyCode::Left | KeyCode::Char('h') | KeyCode::Right | KeyCode::Char('l') if state.view == View::Rings => {
            state.choose(matches!(key.code, KeyCode::Right | KeyCode::Char('l')));
            return Next::Ask;
        }
        KeyCode::Up | KeyCode::Char('k') => state.scroll_by(-1),
        KeyCode::Down | KeyCode::Char('j') => state.scroll_by(1),
        KeyCode::PageUp => state.scroll_by(-PAGE),
        KeyCode::PageDown => state.scroll_by(PAGE),
        _ => {}
    }
    Next::Draw
}

fn show(state: &mut State, view: View) -> Next {
    state.show(view);
    Next::Ask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the keys do what the help says.
    #[test]
    fn keys() {
        let mut state = State::new(Sort::Rate);
        assert_eq!(press(&mut state, KeyCode::Char('q').into()), Next::Quit);
        assert_eq!(press(&mut state, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::Quit);
        assert_eq!(press(&mut state, KeyCode::Char('s').into()), Next::Draw);
        assert_eq!(state.sort, Sort::Drops);
        let views =
            [('4', View::Rings), ('2', View::Drops), ('5', View::Latency), ('3', View::Workers), ('1', View::Ports)];
        for (key, view) in views {
            assert_eq!(press(&mut state, KeyCode::Char(key).into()), Next::Ask);
            assert_eq!(state.view, view);
            assert_eq!(press(&mut state, KeyCode::Tab.into()), Next::Ask);
            assert_eq!(state.view, view.next());
        }
        state.show(View::Ports);
        assert_eq!(press(&mut state, KeyCode::Left.into()), Next::Draw);
        press(&mut state, KeyCode::Char('p').into());
        assert!(state.paused);
        press(&mut state, KeyCode::Char('p').into());
        assert!(!state.paused);
    }
}
