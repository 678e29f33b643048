//! `gradwire top`: a running job, as its ranks tell it: live in a terminal, as one table, or as
//! JSON lines.
//!
//! [`board`] remembers who has answered, [`rows`] computes rates from two answers, [`table`] has
//! the columns and [`screen`] the live view. `gradwire-runtime` makes the answers of ranks.

pub mod board;
pub mod options;
pub mod rows;
pub mod screen;
pub mod table;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use board::{Board, Places};
use gradwire_lab::error::LabError;
use rows::RankRow;
use serde_json::json;

use crate::exit::CommandError;
use options::Top;

/// Watches the ranks that are asked for.
///
/// # Errors
/// [`CommandError::NoRank`] when no rank answers at first; [`LabError::System`] when the
/// terminal cannot be used.
pub fn run(options: &Top) -> Result<(), CommandError> {
    let interval = Duration::from_nanos(options.interval.as_nanos());
    let places = Places {
        hosts: options.host.clone(),
        port: options.port,
    };
    let mut board = Board::default();
    board.update(places.ask());
    if board.sightings().is_empty() {
        return Err(CommandError::NoRank {
            hosts: options.host.join(", "),
            port: options.port,
        });
    }
    let boards = refreshed(places, board, interval);
    if options.json {
        let refreshes = match options.once {
            true => 1,
            false => usize::MAX,
        };
        print_json(&boards, refreshes);
        Ok(())
    } else if options.once || !std::io::stdout().is_terminal() {
        print_table(&boards);
        Ok(())
    } else {
        Ok(screen::show(&boards).map_err(LabError::system("using the terminal"))?)
    }
}

/// The rows of the job, one interval after the other, as long as somebody takes them.
fn refreshed(places: Places, mut board: Board, interval: Duration) -> Receiver<Vec<RankRow>> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(interval);
            board.update(places.ask());
            if tell.send(rows::of(&board)).is_err() {
                return;
            }
        }
    });
    told
}

fn print_table(boards: &Receiver<Vec<RankRow>>) {
    if let Ok(ranks) = boards.recv() {
        print!("{}", table::text(&ranks));
    }
}

/// Prints this many refreshes, or as many as there are until all ranks are gone.
fn print_json(boards: &Receiver<Vec<RankRow>>, refreshes: usize) {
    for ranks in boards.iter().take(refreshes) {
        println!("{}", json!({ "ranks": ranks }));
        if ranks.iter().all(RankRow::is_gone) {
            return;
        }
    }
}
