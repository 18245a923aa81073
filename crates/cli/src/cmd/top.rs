//! `netvale top`: rates, live.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netvale_control::client::Client;
use netvale_control::types::StatsReply;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::{CliError, Ctx, out, values};

mod screen;
mod state;
mod text;

use state::State;

/// Watch rates live.
///
/// Packets and bits per second for each port, drops, kicks per packet, and how busy the workers are. Keys: q quits, s changes the
/// sorting, p pauses. With --batch it prints plain text, for scripts, files and pagers.
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

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the terminal cannot be used.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let mut daemon = ctx.daemon()?;
    let mut read = || daemon.ask(Client::stats);
    if args.batch || args.json { batch(args, &mut read) } else { live(args, &mut read) }?;
    Ok(ExitCode::SUCCESS)
}

/// The source of readings.
type Read<'a> = dyn FnMut() -> Result<StatsReply, CliError> + 'a;

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

fn live(args: &Args, read: &mut Read<'_>) -> Result<(), CliError> {
    if !io::stdout().is_terminal() {
        return Err(CliError::usage("standard output is not a terminal", "add --batch for plain text, or --json"));
    }
    // Read once before the screen is taken, so that an error finds an ordinary terminal.
    let stop = crate::signals::stop_flag()?;
    let mut state = State::new(args.sort);
    state.take(read()?);
    let mut terminal = ratatui::try_init().map_err(|error| terminal_error(&error))?;
    let result = watch(args, &mut state, read, &mut terminal, &stop);
    ratatui::restore();
    result
}

/// The longest that a signal may go unnoticed.
const LOOK: Duration = Duration::from_millis(250);

/// Runs until a key, a signal, or the number of readings ends it.
fn watch(
    args: &Args,
    state: &mut State,
    read: &mut Read<'_>,
    terminal: &mut DefaultTerminal,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let mut left = args.iterations.unwrap_or(u64::MAX);
    // The first figures come soon, the others at the interval asked for.
    let mut next = Instant::now() + delay(args).min(Duration::from_millis(200));
    loop {
        terminal.draw(|frame| screen::draw(frame, state)).map_err(|error| terminal_error(&error))?;
        let end = next.min(Instant::now() + LOOK);
        if left == 0
            || stop.load(Ordering::Relaxed)
            || wait(state, end).map_err(|error| terminal_error(&error))? == Next::Quit
        {
            return Ok(());
        }
        if Instant::now() >= next {
            next = Instant::now() + delay(args);
            if !state.paused && state.take(read()?) {
                left -= 1;
            }
        }
    }
}

fn terminal_error(error: &io::Error) -> CliError {
    CliError::failed(format!("cannot use the terminal: {error}"), "add --batch for plain text")
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Draw,
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
    /// Lines that page up and page down move by.
    const PAGE: isize = 10;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
        KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
        KeyCode::Char('s') => state.next_sort(),
        KeyCode::Char('p' | ' ') => state.paused = !state.paused,
        KeyCode::Up | KeyCode::Char('k') => state.scroll_by(-1),
        KeyCode::Down | KeyCode::Char('j') => state.scroll_by(1),
        KeyCode::PageUp => state.scroll_by(-PAGE),
        KeyCode::PageDown => state.scroll_by(PAGE),
        _ => {}
    }
    Next::Draw
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
        press(&mut state, KeyCode::Char('p').into());
        assert!(state.paused);
        press(&mut state, KeyCode::Char('p').into());
        assert!(!state.paused);
    }
}
