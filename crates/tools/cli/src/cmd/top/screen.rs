//! Draws `top` on the terminal.

use clap::ValueEnum;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::state::TopState;
use super::views::{DIM, HEAD};
use super::{TopView, text, views};
use crate::cmd::word_of;
use crate::grid::Align;
use crate::rates::PortRates;

/// Width of a worker's bar in cells.
const BAR: usize = 10;
/// Width of a worker in its line, in cells: `worker 12 [##########] 100.0 %   `.
const WORKER: u16 = 34;
/// Maximum number of lines for workers.
const WORKER_LINES: u16 = 8;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

pub fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let workers = workers(state, frame.area().width);
    let lines = u16::try_from(workers.len()).unwrap_or(u16::MAX).min(WORKER_LINES);
    let parts = [Constraint::Length(1), Constraint::Length(lines), Constraint::Min(1), Constraint::Length(1)];
    let [top, middle, list, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(summary(state)), top);
    frame.render_widget(Paragraph::new(workers), middle);
    match state.view {
        TopView::Ports => ports(frame, list, state),
        TopView::Drops => frame.render_widget(views::drops(state), list),
        TopView::Workers => frame.render_widget(views::workers(state), list),
        TopView::Latency => frame.render_widget(views::latency(state), list),
        TopView::Rings => frame.render_widget(Paragraph::new(views::rings(state, list.width)), list),
    }
    frame.render_widget(Paragraph::new(keys(state)), bottom);
}

fn summary(state: &TopState) -> Line<'static> {
    let rates = &state.rates;
    let mut spans = vec![Span::styled("netvale top", BOLD), Span::raw(format!("  {} ports", rates.ports.len()))];
    if state.paused {
        spans.push(Span::styled("  paused", BOLD.fg(Color::Yellow)));
    } else if rates.seconds > 0.0 {
        spans.push(Span::raw(format!("  over {:.1} s", rates.seconds)));
    }
    if rates.workers_lost.iter().any(|&lost| lost >= 1.0) {
        let lost = rates.workers_lost.iter().sum::<f64>();
        spans.push(Span::styled(format!("  x: {lost:.0} % of a CPU lost to other threads"), BOLD.fg(Color::Yellow)));
    }
    Line::from(spans)
}

/// Formats the workers, as many per line as fit.
fn workers(state: &TopState, width: u16) -> Vec<Line<'static>> {
    let per_line = usize::from((width / WORKER).max(1));
    let rates = &state.rates;
    let shares = rates.workers_busy.iter().zip(&rates.workers_lost).enumerate();
    let all: Vec<_> = shares.map(|(index, (&busy, &lost))| worker(index, busy, lost)).collect();
    all.chunks(per_line).map(|some| Line::from(some.concat())).collect()
}

/// Formats a worker's bar. The end of the bar shows the lost time, in which other threads used the worker's CPU.
fn worker(index: usize, busy: f64, lost: f64) -> Vec<Span<'static>> {
    // The result is between 0 and `BAR`, since the values are percentages.
    let cells = |percent: f64| ((percent / 100.0 * BAR as f64).round() as usize).min(BAR);
    let full = cells(busy).min(BAR - cells(lost));
    let lost = cells(lost);
    let color = if busy > 90.0 { Color::Red } else { Color::Green };
    vec![
        Span::raw(format!("worker {index:<2} [")),
        Span::styled("#".repeat(full), Style::new().fg(color)),
        Span::styled(".".repeat(BAR - full - lost), DIM),
        Span::styled("x".repeat(lost), Style::new().fg(Color::Yellow)),
        Span::raw(format!("] {busy:5.1} %   ")),
    ]
}

/// Width in cells to which the column of names may grow, even if all names are shorter.
const NAMES: usize = 24;

/// Returns the indices of the columns of [`text::HEADS`] that fit, with their widths in cells. The width of the first
/// column, which has the names, is given as 0: the caller determines it.
fn columns(width: u16) -> &'static [(usize, u16)] {
    match width {
        0..48 => &[(0, 0), (1, 8), (3, 8)],
        48..72 => &[(0, 0), (1, 8), (3, 8), (5, 8), (6, 9)],
        _ => &[(0, 0), (1, 8), (2, 8), (3, 8), (4, 9), (5, 8), (6, 9)],
    }
}

/// Draws the headings, the sum, and the ports beginning at the scroll position.
fn ports(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let columns = columns(area.width);
    let cells = |texts: [String; 7]| -> Row<'static> {
        columns.iter().filter_map(|&(index, _)| Some(cell(texts.get(index)?, text::HEADS.get(index)?.1))).collect()
    };
    let heads = cells(text::HEADS.map(|(head, _)| head.to_owned())).style(HEAD);
    let total = state.total();
    let total = cells(text::row(&total)).style(style(&total).patch(BOLD));
    let shown = state.rates.ports.iter().skip(state.scroll).map(|port| cells(text::row(port)).style(style(port)));
    let longest = state.rates.ports.iter().map(|port| port.port.chars().count()).max().unwrap_or(0);
    // On a wide terminal, figures stay close to the names, and do not move when ports are added or removed.
    let names = Constraint::Max(u16::try_from(longest.next_multiple_of(16).max(NAMES)).unwrap_or(u16::MAX));
    let widths = columns.iter().map(|&(_, width)| if width == 0 { names } else { Constraint::Length(width) });
    let table = Table::new(std::iter::once(total).chain(shown), widths).header(heads).column_spacing(1);
    frame.render_widget(table, area);
}

fn cell(text: &str, align: Align) -> Cell<'static> {
    let alignment = if align == Align::Right { Alignment::Right } else { Alignment::Left };
    Cell::from(Line::from(text.to_owned()).alignment(alignment))
}

/// Returns the style of a row: red if the port drops frames, dim if it has no traffic.
fn style(port: &PortRates) -> Style {
    match port {
        port if port.drops_ps > 0.0 => Style::new().fg(Color::Red),
        port if port.pps() == 0.0 => DIM,
        _ => Style::new(),
    }
}

fn keys(state: &TopState) -> Line<'static> {
    let sort = word_of(state.sort);
    let pause = if state.paused { " resume  " } else { " pause  " };
    let key = |key: &'static str| Span::styled(key, BOLD);
    let mut spans = vec![
        key("q"),
        Span::raw(" quit  "),
        key("s"),
        Span::raw(format!(" sort: {sort}  ")),
        key("p"),
        Span::raw(pause),
    ];
    for (number, view) in ["1", "2", "3", "4", "5"].into_iter().zip(TopView::value_variants()) {
        let style = if *view == state.view { HEAD } else { Style::new() };
        spans.extend([key(number), Span::raw(" "), Span::styled(word_of(*view), style), Span::raw("  ")]);
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use netvale_control::types::{
        AllStats, Latency, LatencyPart, PortDetails, PortInfo, RingInfo, RingStats, WorkerStats,
    };
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::SortColumn;
    use super::*;

    fn sample(seconds: u64, workers: usize) -> AllStats {
        let now_ns = seconds * 1_000_000_000;
        let ring = RingStats { frames: seconds * 14_880_000, bytes: seconds * 892_800_000, batches: seconds };
        let port = PortDetails {
            name: "vale0:a".into(),
            ingress: vec![ring],
            in_drops: [("rate".to_owned(), seconds * 10)].into(),
            ..PortDetails::default()
        };
        AllStats {
            now_ns,
            ports: vec![port],
            workers: vec![WorkerStats { busy_ns: now_ns / 2, ..WorkerStats::default() }; workers],
            ..AllStats::default()
        }
    }

    fn lines(width: u16, height: u16, workers: usize) -> Vec<String> {
        let mut state = TopState::new(SortColumn::Rate);
        state.take(sample(0, workers));
        state.take(sample(1, workers));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test backend");
        terminal.draw(|frame| draw(frame, &state)).expect("a test backend");
        let buffer = terminal.backend().buffer();
        let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    /// Objective: on an ordinary terminal each figure is shown in its place.
    #[test]
    fn eighty_columns_show_each_figure_in_its_place() {
        let lines = lines(80, 8, 2);
        assert_eq!(lines[0], "netvale top  1 ports  over 1.0 s");
        assert_eq!(lines[1], "worker 0  [#####.....]  50.0 %   worker 1  [#####.....]  50.0 %");
        assert!(lines[2].starts_with("PORT") && lines[2].ends_with("KICKS/PKT"), "{lines:#?}");
        assert!(lines[3].starts_with("total") && lines[3].contains("14.88M    7.14G"), "{lines:#?}");
        assert!(lines[4].starts_with("vale0:a") && lines[4].contains("14.88M    7.14G"), "{lines:#?}");
        assert!(lines[7].ends_with("5 latency"), "{lines:#?}");
        assert!(lines[7].starts_with("q quit  s sort: rate  p pause"), "{lines:#?}");
    }

    /// Objective: the end of a worker's bar shows its lost time, which a legend explains; if a busy worker has lost
    /// half of its time, its bar is full.
    #[test]
    fn lost_time_is_at_the_end_of_the_bar() {
        let bar = |busy, lost| worker(0, busy, lost).iter().map(|span| span.content.to_string()).collect::<String>();
        assert_eq!(bar(30.0, 20.0), "worker 0  [###.....xx]  30.0 %   ");
        assert_eq!(bar(99.0, 50.0), "worker 0  [#####xxxxx]  99.0 %   ");
        let mut state = TopState::new(SortColumn::Rate);
        let lost = |seconds: u64| {
            let mut sample = sample(seconds, 1);
            sample.workers[0].preempted_ns = seconds * 200_000_000;
            sample
        };
        state.take(lost(0));
        state.take(lost(1));
        assert!(summary(&state).to_string().ends_with("x: 20 % of a CPU lost to other threads"));
    }

    /// Objective: on a wide terminal, figures stay close to the names.
    #[test]
    fn figures_stay_beside_their_names_on_wide_terminals() {
        let lines = lines(200, 8, 1);
        assert!(lines[4].starts_with("vale0:a ") && lines[4].find("14.88M").is_some_and(|at| at < 40), "{lines:#?}");
    }

    /// Objective: on a narrow terminal columns are omitted, and the names stay readable.
    #[test]
    fn names_stay_readable_on_narrow_terminals() {
        let lines = lines(40, 8, 1);
        assert!(lines[2].starts_with("PORT") && lines[2].ends_with("OUT pps"), "{lines:#?}");
        assert!(lines[4].starts_with("vale0:a "), "{lines:#?}");
    }

    /// Objective: each view has its headings and figures, and the last line names the view.
    #[test]
    fn each_view_has_its_heads_and_figures() {
        let mut state = TopState::new(SortColumn::Rate);
        state.take(sample(0, 1));
        state.take(sample(1, 1));
        let drawn = |state: &TopState| {
            let mut terminal = Terminal::new(TestBackend::new(80, 12)).expect("a test backend");
            terminal.draw(|frame| draw(frame, state)).expect("a test backend");
            let cells: Vec<_> = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
            cells.concat()
        };
        let with = |seconds, port| AllStats { ports: vec![port], ..sample(seconds, 1) };
        state.show(TopView::Drops);
        let drops = [("no-room".to_owned(), 7)].into();
        let port = PortDetails { name: "vale0:a".into(), out_drops: drops, ..PortDetails::default() };
        state.take(with(2, port));
        let text = drawn(&state);
        assert!(text.contains("REASON") && text.contains("no-room") && text.contains("4 rings"), "{text}");
        state.show(TopView::Latency);
        assert!(drawn(&state).contains("no frame was timed recently"));
        let parts = vec![LatencyPart { up_to_ns: Some(2_000), frames: 8 }];
        let latency = Some(Latency { sum_ns: 12_000, parts });
        let port = PortDetails { name: "vale0:a".into(), latency, ..PortDetails::default() };
        state.take(with(3, port));
        let text = drawn(&state);
        assert!(text.contains("TIMED") && text.contains("8   1.500µs   2.000µs"), "{text}");
        state.show(TopView::Workers);
        let text = drawn(&state);
        assert!(text.contains("BUSY%") && text.contains("##########.........."), "{text}");
        state.show(TopView::Rings);
        let ring = RingInfo { slots: 16, head: 3, cur: 3, tail: 9, hwtail: 9, ..RingInfo::default() };
        state.port = Some(PortInfo { rings: vec![ring], notes: vec!["odd\x1b".into()], ..PortInfo::default() });
        let text = drawn(&state);
        assert!(text.contains("vale0:a") && text.contains("ooo======.......") && text.contains("note: odd?"), "{text}");
    }

    /// Objective: drawing works in any size of terminal, even with more workers than fit.
    #[test]
    fn drawing_works_in_any_size() {
        for (width, height) in [(1, 1), (3, 2), (20, 4), (300, 100)] {
            assert_eq!(lines(width, height, 64).len(), usize::from(height));
        }
    }
}
