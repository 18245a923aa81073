//! `netvale top`: shows rates live.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use netvale_control::client::Client;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::ctx::DaemonClient;
use crate::error::FailureKind;
use crate::{CliContext, CliError, out, values};

mod drops;
mod latency;
mod screen;
mod state;
mod text;
mod views;
mod workers;

use state::TopState;

/// Show rates live.
///
/// Shows packets and bits per second for each port, drops, kicks per packet, and the workers' load. Keys: q quits, s
/// changes the sorting, p pauses, up and down scroll. 1 to 5 or tab select the view: ports; drops by reason; the
/// workers' time; the rings of a port (left and right: other ports); the latency of frames, if the daemon measures it
/// (latency_sampling). With --batch, prints plain text for scripts, files and pagers.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
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
    pub sort: SortColumn,

    /// The first view.
    #[arg(long, value_enum, value_name = "VIEW", default_value = "ports", conflicts_with_all = ["batch", "json"])]
    pub view: TopView,

    /// Port whose rings are shown first.
    #[arg(long, value_name = "SWITCH:PORT", conflicts_with_all = ["batch", "json"])]
    pub port: Option<String>,

    /// Print each update as a JSON object on a line (implies --batch).
    #[arg(long)]
    pub json: bool,
}

/// The columns that `top` can sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SortColumn {
    /// Packets per second, in and out together.
    #[default]
    Rate,
    /// Drops per second.
    Drops,
    /// The port's name.
    Name,
}

/// The views of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TopView {
    /// Rates of ports.
    #[default]
    Ports,
    /// Drops by reason.
    Drops,
    /// How the workers spend their time.
    Workers,
    /// The rings of a port.
    Rings,
    /// Latency of frames.
    Latency,
}

/// Returns the value after `value` in the order of the help; after the last value, returns the first.
fn next<T: ValueEnum + PartialEq>(value: T) -> T {
    let all = T::value_variants().iter().cycle();
    all.skip_while(|known| **known != value).nth(1).cloned().unwrap_or(value)
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, or the terminal cannot be used.
pub fn run(args: &TopArgs, ctx: &CliContext) -> Result<(), CliError> {
    let mut daemon = ctx.daemon()?;
    if args.batch || args.json { batch(args, &mut daemon) } else { live(args, &mut daemon) }
}

fn batch(args: &TopArgs, daemon: &mut DaemonClient) -> Result<(), CliError> {
    let mut state = TopState::new(args.sort);
    state.take(daemon.ask(Client::all_stats)?);
    let mut left = args.iterations.unwrap_or(u64::MAX);
    while left > 0 {
        std::thread::sleep(delay(args));
        if !state.take(daemon.ask(Client::all_stats)?) {
            continue;
        }
        left -= 1;
        if args.json { out::json(&state.rates)? } else { out::text(text::render(&state))? }
    }
    Ok(())
}

fn delay(args: &TopArgs) -> Duration {
    Duration::from_secs_f64(args.delay)
}

fn live(args: &TopArgs, daemon: &mut DaemonClient) -> Result<(), CliError> {
    if !io::stdout().is_terminal() {
        return Err(CliError::usage("standard output is not a terminal", "add --batch for plain text, or --json"));
    }
    // The counters are read once before the alternate screen is entered, so that an error is printed normally.
    let stop = crate::signals::stop_flag()?;
    let mut state = TopState::new(args.sort);
    state.chosen.clone_from(&args.port);
    state.take(daemon.ask(Client::all_stats)?);
    state.show(args.view);
    let mut terminal = ratatui::try_init().map_err(|error| terminal_error(&error))?;
    let result = watch(args, &mut state, daemon, &mut terminal, &stop);
    ratatui::restore();
    result
}

/// Maximum time to wait for a key; after it, signals are checked.
const LOOK: Duration = Duration::from_millis(250);

/// Runs until the user presses a key that ends it, a signal arrives, or the requested number of readings is reached.
fn watch(
    args: &TopArgs,
    state: &mut TopState,
    daemon: &mut DaemonClient,
    terminal: &mut DefaultTerminal,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let mut left = args.iterations.unwrap_or(u64::MAX);
    // Rates need two readings, so the second reading follows soon; later readings follow at the requested interval.
    let mut next = Instant::now() + delay(args).min(Duration::from_millis(200));
    loop {
        terminal.draw(|frame| screen::draw(frame, state)).map_err(|error| terminal_error(&error))?;
        let end = next.min(Instant::now() + LOOK);
        if left == 0 || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        match wait(state, end).map_err(|error| terminal_error(&error))? {
            KeyEffect::Quit => return Ok(()),
            KeyEffect::Ask => details(state, daemon)?,
            KeyEffect::Draw => {}
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

/// Requests the rings of the chosen port, if the view of rings is shown.
fn details(state: &mut TopState, daemon: &mut DaemonClient) -> Result<(), CliError> {
    if let (TopView::Rings, Some(name)) = (state.view, &state.chosen) {
        match daemon.ask(|client| client.show(name)) {
            Ok(port) => state.port = Some(port),
            // The port has ended.
            Err(error) if error.kind() == FailureKind::Refused => state.port = None,
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
enum KeyEffect {
    Draw,
    /// Another view is shown, for which data must be requested before it can be drawn.
    Ask,
    Quit,
}

/// Waits for an event until `end`. Returns its effect.
fn wait(state: &mut TopState, end: Instant) -> io::Result<KeyEffect> {
    if !event::poll(end.saturating_duration_since(Instant::now()))? {
        return Ok(KeyEffect::Draw);
    }
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(press(state, key)),
        _ => Ok(KeyEffect::Draw),
    }
}

fn press(state: &mut TopState, key: KeyEvent) -> KeyEffect {
    /// Number of lines by which page up and page down scroll.
    const PAGE: isize = 10;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return KeyEffect::Quit,
        KeyCode::Char('q') | KeyCode::Esc => return KeyEffect::Quit,
        KeyCode::Char('s') => state.next_sort(),
        KeyCode::Char('p' | ' ') => state.paused = !state.paused,
        KeyCode::Char(digit @ '1'..='5') => {
            let view = TopView::value_variants()[digit as usize - '1' as usize];
            return show(state, view);
        }
        KeyCode::Enter => return show(state, TopView::Rings),
        KeyCode::Tab => return show(state, next(state.view)),
        KeyCode::Left | KeyCode::Char('h') | KeyCode::Right | KeyCode::Char('l') if state.view == TopView::Rings => {
            state.choose(matches!(key.code, KeyCode::Right | KeyCode::Char('l')));
            return KeyEffect::Ask;
        }
        KeyCode::Up | KeyCode::Char('k') => state.scroll_by(-1),
        KeyCode::Down | KeyCode::Char('j') => state.scroll_by(1),
        KeyCode::PageUp => state.scroll_by(-PAGE),
        KeyCode::PageDown => state.scroll_by(PAGE),
        _ => {}
    }
    KeyEffect::Draw
}

fn show(state: &mut TopState, view: TopView) -> KeyEffect {
    state.show(view);
    KeyEffect::Ask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the keys do what the help says.
    #[test]
    fn the_keys_do_what_the_help_says() {
        let mut state = TopState::new(SortColumn::Rate);
        assert_eq!(press(&mut state, KeyCode::Char('q').into()), KeyEffect::Quit);
        assert_eq!(press(&mut state, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), KeyEffect::Quit);
        assert_eq!(press(&mut state, KeyCode::Char('s').into()), KeyEffect::Draw);
        assert_eq!(state.sort, SortColumn::Drops);
        let views = [
            ('4', TopView::Rings),
            ('2', TopView::Drops),
            ('5', TopView::Latency),
            ('3', TopView::Workers),
            ('1', TopView::Ports),
        ];
        for (key, view) in views {
            assert_eq!(press(&mut state, KeyCode::Char(key).into()), KeyEffect::Ask);
            assert_eq!(state.view, view);
            assert_eq!(press(&mut state, KeyCode::Tab.into()), KeyEffect::Ask);
            assert_eq!(state.view, next(view));
        }
        state.show(TopView::Ports);
        assert_eq!(press(&mut state, KeyCode::Left.into()), KeyEffect::Draw);
        press(&mut state, KeyCode::Char('p').into());
        assert!(state.paused);
        press(&mut state, KeyCode::Char('p').into());
        assert!(!state.paused);
    }
}
