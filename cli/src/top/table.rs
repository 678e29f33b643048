//! The columns of `gradwire top`, which of them a narrow terminal shows, and the table as text.

use std::fmt::Write;

use super::rows::{RankRow, TopRow};

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub head: &'static str,
    /// Its width, in characters.
    pub width: usize,
    /// Narrow terminals drop the columns of the largest number first.
    dispensable: u8,
    /// The text of a cell.
    pub text: fn(&TopRow) -> String,
    /// The sort key of its rows, largest first.
    pub weight: fn(&TopRow) -> f64,
}

macro_rules! columns {
    ($($head:literal, $width:literal, $dispensable:literal, $text:expr, $weight:expr;)+) => {
        [$(Column {
            head: $head,
            width: $width,
            dispensable: $dispensable,
            text: $text,
            weight: $weight,
        }),+]
    };
}

const RANK: Column = columns! {
    "rank", 5, 0, |row| row.rank.to_string(), |row| -f64::from(row.rank);
}[0];
const PEER: Column = Column {
    head: "peer",
    ..RANK
};

const SHARED: [Column; 7] = columns! {
    "out MB/s", 9, 1, |row| mega(row.out_bytes_per_s), |row| row.out_bytes_per_s;
    "in MB/s", 9, 1, |row| mega(row.in_bytes_per_s), |row| row.in_bytes_per_s;
    "lost", 7, 2, |row| percent(row.lost_share), |row| row.lost_share.unwrap_or(-1.0);
    "repair/s", 9, 4, |row| whole(row.repairs_per_s), |row| row.repairs_per_s;
    "mark/s", 7, 6, |row| whole(row.marks_per_s), |row| row.marks_per_s;
    "rtt50 us", 9, 7, |row| count(row.rtt_p50_us), |row| weight(row.rtt_p50_us);
    "rtt99 us", 9, 5, |row| count(row.rtt_p99_us), |row| weight(row.rtt_p99_us);
};

const OF_RANKS: [Column; 3] = columns! {
    "tol", 6, 3, |row| percent(row.tolerance), |row| row.tolerance.unwrap_or(-1.0);
    "kdrops", 8, 8, |row| count(row.kernel_drops), |row| weight(row.kernel_drops);
    "ops/s", 8, 3, |row| row.operations_per_s.map_or_else(dash, one_digit),
        |row| row.operations_per_s.unwrap_or(-1.0);
};

const OF_PEERS: [Column; 2] = columns! {
    "flight/window kB", 17, 8, flight, |row| weight(row.in_flight_bytes);
    "order", 9, 9, |row| row.order.clone().unwrap_or_else(dash),
        |row| f64::from(u8::from(row.order.as_deref() == Some("broken")));
};

const STATE: Column = columns! {
    "state", 7, 2, |row| row.state.clone(), |row| f64::from(u8::from(row.state != "up"));
}[0];

/// The columns of ranks that fit into `width` characters.
pub fn of_ranks(width: usize) -> Vec<Column> {
    let [tolerance, drops, operations] = OF_RANKS;
    let mut columns = vec![RANK];
    columns.extend(SHARED);
    columns.insert(4, tolerance);
    columns.extend([drops, operations, STATE]);
    fitting(columns, width)
}

/// The columns of peers that fit into `width` characters.
pub fn of_peers(width: usize) -> Vec<Column> {
    let mut columns = vec![PEER];
    columns.extend(SHARED);
    columns.extend(OF_PEERS);
    columns.push(STATE);
    fitting(columns, width)
}

fn fitting(mut columns: Vec<Column>, width: usize) -> Vec<Column> {
    while columns.iter().map(|column| column.width + 1).sum::<usize>() > width {
        let worst = columns.iter().map(|column| column.dispensable).max();
        let Some(worst) = worst.filter(|worst| *worst > 0) else {
            break;
        };
        let at = columns
            .iter()
            .rposition(|column| column.dispensable == worst);
        columns.remove(at.expect("one of the columns has the maximum"));
    }
    columns
}

fn dash() -> String {
    "-".to_owned()
}

fn one_digit(value: f64) -> String {
    format!("{value:.1}")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn mega(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(dash, |share| match share {
        0.0 => "0%".to_owned(),
        share if share < 0.099_95 => format!("{:.2}%", share * 100.0),
        share => format!("{:.1}%", share * 100.0),
    })
}

fn count(value: Option<u64>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

fn weight(value: Option<u64>) -> f64 {
    value.map_or(-1.0, |value| value as f64)
}

fn flight(row: &TopRow) -> String {
    let kilo = |bytes: Option<u64>| count(bytes.map(|bytes| bytes / 1000));
    format!("{}/{}", kilo(row.in_flight_bytes), kilo(row.window_bytes))
}

/// The line about a job above its ranks.
pub fn title(ranks: &[RankRow]) -> String {
    let Some(first) = ranks.first() else {
        return "no ranks".to_owned();
    };
    let here = ranks.iter().filter(|rank| !rank.is_gone()).count();
    let jobs = ranks.chunk_by(|a, b| a.job_id == b.job_id).count();
    match jobs {
        1 => format!("job {:?}, {here} of {} ranks", first.job, first.world_size),
        jobs => format!("{jobs} jobs, {here} ranks"),
    }
}

/// All ranks and all peers as one text of two tables.
pub fn text(ranks: &[RankRow]) -> String {
    let mut text = format!("# {}\n", title(ranks));
    let columns = of_ranks(usize::MAX);
    line(&mut text, &columns, |column| column.head.to_owned());
    for rank in ranks {
        line(&mut text, &columns, |column| (column.text)(&rank.row));
    }
    let columns = of_peers(usize::MAX);
    text.push('\n');
    let _ = write!(text, "{:>6}", "rank");
    line(&mut text, &columns, |column| column.head.to_owned());
    for rank in ranks {
        for peer in &rank.peers {
            let _ = write!(text, "{:>6}", rank.row.rank);
            line(&mut text, &columns, |column| (column.text)(peer));
        }
    }
    text
}

fn line(text: &mut String, columns: &[Column], cell: impl Fn(&Column) -> String) {
    for column in columns {
        let _ = write!(text, " {:>1$}", cell(column), column.width);
    }
    text.push('\n');
}
