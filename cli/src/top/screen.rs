//! The live view: ranks above, the peers of the chosen rank below, refreshed as answers come.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Row as TableRow, Table, TableState};

use super::rows::{RankRow, TopRow};
use super::table::{self, Column};

/// How long a key may wait, at most.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// Below this height only ranks are shown.
const HEIGHT_WITH_PEERS: u16 = 10;

/// Shows the boards as they arrive, until the user presses q.
///
/// # Errors
/// When the terminal cannot be used.
pub fn show(boards: &Receiver<Vec<RankRow>>) -> io::Result<()> {
    let mut view = View::default();
    let mut terminal = ratatui::try_init()?;
    let mut watch = || -> io::Result<()> {
        loop {
            match boards.try_recv() {
                Ok(ranks) => view.update(ranks),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other(RecvTimeoutError::Disconnected));
                }
            }
            terminal.draw(|frame| view.draw(frame))?;
            if event::poll(KEY_WAIT)?
                && let Event::Key(key) = event::read()?
                && view.press(key) == KeyWish::Quit
            {
                return Ok(());
            }
        }
    };
    let watched = watch();
    ratatui::try_restore()?;
    watched
}

/// The wish behind a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyWish {
    /// To go on.
    Stay,
    /// To end.
    Quit,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum SortOrder {
    #[default]
    Largest,
    Smallest,
}

/// The content of the screen, and its selection.
#[derive(Debug, Default)]
pub struct View {
    ranks: Vec<RankRow>,
    /// Which rank is chosen, by job and number.
    chosen: Option<(u32, u16)>,
    /// Which column is chosen.
    column: usize,
    /// By the head of which column rows are sorted.
    sorted: Option<(&'static str, SortOrder)>,
    /// Width of the ranks' table, which decides the columns that fit.
    width: usize,
}

impl View {
    /// Takes a refresh.
    pub fn update(&mut self, ranks: Vec<RankRow>) {
        self.ranks = ranks;
        self.sort();
    }

    /// Takes a key.
    pub fn press(&mut self, key: KeyEvent) -> KeyWish {
        if key.kind == KeyEventKind::Release {
            return KeyWish::Stay;
        }
        let columns = table::of_ranks(self.width);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyWish::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return KeyWish::Quit;
            }
            KeyCode::Up => self.choose(|at| at.saturating_sub(1)),
            KeyCode::Down => self.choose(|at| at + 1),
            KeyCode::Left => self.column = self.column.saturating_sub(1),
            KeyCode::Right => self.column = (self.column + 1).min(columns.len() - 1),
            KeyCode::Char('s') => {
                let head = columns[self.column.min(columns.len() - 1)].head;
                let order = match self.sorted {
                    Some((sorted, SortOrder::Largest)) if sorted == head => SortOrder::Smallest,
                    _ => SortOrder::Largest,
                };
                self.sorted = Some((head, order));
                self.sort();
            }
            _ => {}
        }
        KeyWish::Stay
    }

    fn at(&self) -> usize {
        let id = |rank: &RankRow| Some((rank.job_id, rank.row.rank));
        let at = self.ranks.iter().position(|rank| id(rank) == self.chosen);
        at.unwrap_or(0)
    }

    fn choose(&mut self, step: impl Fn(usize) -> usize) {
        let at = step(self.at()).min(self.ranks.len().saturating_sub(1));
        let rank = self.ranks.get(at);
        self.chosen = rank.map(|rank| (rank.job_id, rank.row.rank));
    }

    fn sort(&mut self) {
        let Some((head, order)) = self.sorted else {
            return;
        };
        let compare = |column: &Column, a: &TopRow, b: &TopRow| {
            let weights = ((column.weight)(b), (column.weight)(a));
            match order {
                SortOrder::Largest => weights.0.total_cmp(&weights.1),
                SortOrder::Smallest => weights.1.total_cmp(&weights.0),
            }
        };
        let named = |columns: Vec<Column>| columns.into_iter().find(|one| one.head == head);
        if let Some(column) = named(table::of_ranks(usize::MAX)) {
            self.ranks.sort_by(|a, b| compare(&column, &a.row, &b.row));
        }
        if let Some(column) = named(table::of_peers(usize::MAX)) {
            for rank in &mut self.ranks {
                rank.peers.sort_by(|a, b| compare(&column, a, b));
            }
        }
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let at = self.at();
        let with_peers = area.height >= HEIGHT_WITH_PEERS;
        let wanted = self.ranks.len() as u16 + 3;
        let most = area
            .height
            .saturating_sub(2)
            .div_ceil(if with_peers { 2 } else { 1 });
        let [top, ranks, peers, bottom] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(wanted.min(most)),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        frame.render_widget(Line::from(self.title()).style(Modifier::BOLD), top);
        self.width = usize::from(ranks.width).saturating_sub(3);
        self.draw_ranks(frame, ranks, at);
        if with_peers {
            self.draw_peers(frame, peers, at);
        }
        let keys = " q quit   up/down rank   left/right column   s sort";
        frame.render_widget(Line::from(keys).style(Color::DarkGray), bottom);
    }

    fn title(&self) -> String {
        match self.ranks.is_empty() {
            true => " gradwire top: measuring".to_owned(),
            false => format!(" gradwire top: {}", table::title(&self.ranks)),
        }
    }

    fn draw_ranks(&self, frame: &mut Frame<'_>, area: Rect, at: usize) {
        let columns = table::of_ranks(self.width);
        let rows = self.ranks.iter().map(|rank| &rank.row);
        let table = grid(&columns, rows, Some(self.column.min(columns.len() - 1)));
        let table = table
            .block(Block::new().borders(Borders::ALL).title(" ranks "))
            .highlight_symbol(">")
            .row_highlight_style(Modifier::REVERSED);
        let mut state = TableState::new().with_selected(at);
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn draw_peers(&self, frame: &mut Frame<'_>, area: Rect, at: usize) {
        let Some(rank) = self.ranks.get(at) else {
            return;
        };
        let columns = table::of_peers(self.width);
        let (number, host, wire) = (rank.row.rank, &rank.host, &rank.wire);
        let title = format!(" peers of rank {number} on {host}, over {wire} ");
        let table = grid(&columns, rank.peers.iter(), None);
        let table = table.block(Block::new().borders(Borders::ALL).title(title));
        frame.render_widget(table, area);
    }
}

fn grid<'a>(
    columns: &[Column],
    rows: impl Iterator<Item = &'a TopRow>,
    chosen: Option<usize>,
) -> Table<'a> {
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let heads = columns.iter().enumerate().map(|(at, column)| {
        let style = match chosen == Some(at) {
            true => Style::new()
                .fg(Color::Cyan)
                .add_modifier(Modifier::UNDERLINED),
            false => Style::new().fg(Color::Cyan),
        };
        right(column.head.to_owned()).style(style)
    });
    let body = rows.map(|row| {
        let cells = columns.iter().map(|column| right((column.text)(row)));
        let style = match row.state.as_str() {
            "up" | "well" => Style::new(),
            _ => Style::new().fg(Color::Red),
        };
        TableRow::new(cells.collect::<Vec<_>>()).style(style)
    });
    let widths = columns
        .iter()
        .map(|column| Constraint::Length(column.width as u16));
    Table::new(body.collect::<Vec<_>>(), widths)
        .header(TableRow::new(heads.collect::<Vec<_>>()))
        .column_spacing(1)
}

#[cfg(test)]
mod tests {
    use gradwire_runtime::Snapshot;
    use gradwire_runtime::metrics::snapshot::{
        ClassTraffic, LossTotals, OperationTimes, PeerSnapshot, TimeSpread,
    };
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::board::{Board, RankAnswer};
    use super::super::rows;
    use super::*;

    fn peer(rank: u16, seconds: u64) -> PeerSnapshot {
        let weight = u64::from(rank + 1) * seconds;
        PeerSnapshot {
            rank,
            standing: "well".to_owned(),
            in_flight_bytes: 300_000,
            window_bytes: 1_048_576,
            order: if rank == 1 { "broken" } else { "kept" }.to_owned(),
            received_segments: 9_800 * weight,
            lost_segments: 200 * weight,
            classes: vec![ClassTraffic {
                class: 1,
                sent_bytes: 250_000_000 * weight,
                received_bytes: 125_000_000 * weight,
                repaired_segments: 17 * weight,
                marks: 5 * weight,
                ..ClassTraffic::default()
            }],
            round_trips: TimeSpread {
                count: 1_000 * seconds,
                p50_us: 120 + u64::from(rank),
                p99_us: 950 + u64::from(rank),
                ..TimeSpread::default()
            },
            ..PeerSnapshot::default()
        }
    }

    /// The counters of a rank of three after this many seconds.
    fn snapshot(rank: u16, seconds: u64) -> Snapshot {
        Snapshot {
            job: "demo".to_owned(),
            job_id: 7,
            rank,
            world_size: 3,
            host: "alpha".to_owned(),
            wire: "udp".to_owned(),
            uptime_s: seconds as f64,
            tolerance: 0.1,
            loss: LossTotals {
                owed_bytes: 1_000_000 * seconds,
                allowed_bytes: 100_000 * seconds,
                lost_bytes: 12_500 * seconds * u64::from(rank),
                ..LossTotals::default()
            },
            driver: [("kernel_drops".to_owned(), u64::from(rank) * 3)].into(),
            peers: (0..3)
                .filter(|other| *other != rank)
                .map(|other| peer(other, seconds))
                .collect(),
            operations: vec![OperationTimes {
                times: TimeSpread {
                    count: 40 * seconds,
                    ..TimeSpread::default()
                },
                ..OperationTimes::default()
            }],
            ..Snapshot::default()
        }
    }

    fn answers(ranks: &[u16], seconds: u64) -> Vec<RankAnswer> {
        let answer = |&rank: &u16| RankAnswer {
            host: "127.0.0.1".to_owned(),
            port: 9400 + rank,
            snapshot: snapshot(rank, seconds),
        };
        ranks.iter().map(answer).collect()
    }

    /// Three ranks, of which the last has gone.
    fn board() -> Board {
        let mut board = Board::default();
        board.update(answers(&[0, 1, 2], 10));
        board.update(answers(&[0, 1], 12));
        board
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
        terminal
            .draw(|frame| view.draw(frame))
            .expect("it is memory");
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width));
        let lines = lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
        lines
            .map(|line| line.trim_end().to_owned() + "\n")
            .collect()
    }

    fn press(view: &mut View, codes: &[KeyCode]) -> Vec<KeyWish> {
        let keys = codes.iter().map(|code| KeyEvent::from(*code));
        keys.map(|key| view.press(key)).collect()
    }

    #[test]
    fn live_view_shows_ranks_and_chosen_peers() {
        let mut view = View::default();
        view.update(rows::of(&board()));
        assert_eq!(drawn(&mut view, 110, 14), include_str!("screen/wide.txt"));
    }

    #[test]
    fn a_narrow_terminal_keeps_rank_and_throughput() {
        let mut view = View::default();
        view.update(rows::of(&board()));
        assert_eq!(drawn(&mut view, 50, 12), include_str!("screen/narrow.txt"));
        assert_eq!(drawn(&mut view, 3, 2).lines().count(), 2);
    }

    #[test]
    fn keys_choose_a_rank_sort_and_quit() {
        let mut view = View::default();
        assert_eq!(
            press(&mut view, &[KeyCode::Down, KeyCode::Char('s')]).len(),
            2
        );
        view.update(rows::of(&board()));
        drawn(&mut view, 100, 14);
        let order =
            |view: &View| -> Vec<u16> { view.ranks.iter().map(|rank| rank.row.rank).collect() };
        press(&mut view, &[KeyCode::Down]);
        assert!(drawn(&mut view, 100, 14).contains("peers of rank 1 on alpha"));
        press(&mut view, &[KeyCode::Right, KeyCode::Char('s')]);
        assert_eq!(order(&view), [0, 1, 2], "by what they send");
        press(&mut view, &[KeyCode::Char('s')]);
        assert_eq!(order(&view), [2, 1, 0], "the other way round");
        assert!(drawn(&mut view, 100, 14).contains("peers of rank 1 on alpha"));
        let last = press(&mut view, &[KeyCode::Left, KeyCode::Char('q')]);
        assert_eq!(last, [KeyWish::Stay, KeyWish::Quit]);
    }

    #[test]
    fn rates_span_two_answers_gone_ranks_have_none() {
        let ranks = rows::of(&board());
        let rank = &ranks[0];
        assert_eq!(rank.interval_s, 2.0);
        assert_eq!(rank.row.out_bytes_per_s, 1.25e9);
        assert_eq!(rank.row.operations_per_s, Some(40.0));
        assert_eq!(rank.row.lost_share, Some(0.0));
        assert_eq!(ranks[1].row.lost_share, Some(0.0125));
        assert_eq!(ranks[1].peers[0].lost_share, Some(0.02));
        assert!(ranks[2].is_gone() && ranks[2].row.out_bytes_per_s == 0.0);
    }

    #[test]
    fn new_runs_replace_old_ones_at_their_port() {
        let mut board = board();
        let mut again = answers(&[0, 1, 2], 1);
        again
            .iter_mut()
            .for_each(|answer| answer.snapshot.job_id = 8);
        board.update(again);
        let runs = board.sightings().iter().map(|seen| seen.now.job_id);
        assert_eq!(runs.collect::<Vec<_>>(), [8, 8, 8]);
    }

    #[test]
    fn text_tables_have_every_rank_and_peer() {
        assert_eq!(
            table::text(&rows::of(&board())),
            include_str!("screen/table.txt")
        );
    }
}
