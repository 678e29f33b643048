//! Rows over time: when each of them was busy, as bars on one axis of microseconds.

use super::svg::{Anchor, Drawing, Scale, number};

const WIDTH: f64 = 1_140.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const FOOT: f64 = 44.0;
/// Pixels that a letter of a legend takes, about.
const LETTER: f64 = 7.2;

/// A picture of rows over time.
pub struct TimelinePlot {
    drawing: Drawing,
    time: Scale,
    /// Room for the names of rows, and the height of a row, in pixels.
    left: f64,
    row: f64,
    foot: f64,
    /// Where the next entry of the legend begins.
    key: f64,
}

/// A bar, with `told` shown under the pointer.
pub struct TimelineBar<'a> {
    /// From when to when, in microseconds.
    pub time: (f64, f64),
    /// The row that it begins in, with a fraction, and how many rows it covers.
    pub rows: (f64, f64),
    /// Its colour, and how much of it there is; bars above each other add up.
    pub fill: (&'a str, f64),
    /// Its name and length.
    pub told: &'a str,
}

impl TimelinePlot {
    /// This many rows of a height in pixels, right of their names, from 0 to `end` microseconds.
    pub fn new(left: f64, (rows, row): (usize, f64), end: f64) -> Self {
        let foot = TOP + rows as f64 * row;
        let mut drawing = Drawing::new(WIDTH, foot + FOOT);
        let time = Scale::linear((0.0, end), (left, WIDTH - RIGHT));
        for tick in time.ticks(8) {
            let at = time.at(tick);
            drawing.line((at, TOP), (at, foot), r#"class="grid""#);
            drawing.text((at, foot + 18.0), Anchor::Middle, "tick", &number(tick));
        }
        Self {
            drawing,
            time,
            left,
            row,
            foot,
            key: left,
        }
    }

    /// Adds the name of a colour to the legend.
    pub fn key(&mut self, name: &str, colour: &str) {
        let style = format!(r#"fill="{colour}" fill-opacity="0.85""#);
        let x = self.key;
        self.drawing.area((x, 6.0), (16.0, 9.0), &style, "");
        self.drawing
            .text((x + 22.0, 15.0), Anchor::Start, "key", name);
        self.key += 50.0 + name.len() as f64 * LETTER;
    }

    /// Names a row, counted from 0 at the top.
    pub fn name(&mut self, row: usize, name: &str) {
        let y = TOP + (row as f64 + 0.5) * self.row + 4.0;
        self.drawing
            .text((self.left - 10.0, y), Anchor::End, "tick", name);
    }

    /// Draws a bar.
    pub fn bar(&mut self, bar: &TimelineBar<'_>) {
        let (from, to) = (self.time.at(bar.time.0), self.time.at(bar.time.1));
        let (first, rows) = bar.rows;
        let size = ((to - from).max(0.5), (rows * self.row).max(0.8));
        let (colour, opacity) = bar.fill;
        let style = format!(r#"fill="{colour}" fill-opacity="{opacity}""#);
        let corner = (from, TOP + first * self.row);
        self.drawing.area(corner, size, &style, bar.told);
    }

    /// The picture as an element of a page, with the title of its axis; `label` describes it.
    pub fn element(mut self, title: &str, label: &str) -> String {
        let middle = f64::midpoint(self.left, WIDTH - RIGHT);
        let at = (middle, self.foot + 38.0);
        self.drawing.text(at, Anchor::Middle, "title", title);
        self.drawing.element(label)
    }
}
