//! The legend: what it lists, and how it fills the room below or beside the plot.

use super::marks::{Place, band_sample, curve_sample};
use super::text::{self, Anchor, Style};
use super::{Chart, Stroke};

const TEXT: Style = Style { size: 12.0, bold: false, anchor: Anchor::Start };

/// The distance of lines of text.
const LINE: f64 = 18.0;

/// The length of a sample: long enough for every dash pattern to show.
const SAMPLE: f64 = 42.0;

/// The distance of a sample from its text.
const GAP: f64 = 8.0;

/// The distance between columns.
const GUTTER: f64 = 14.0;

/// The extra distance between the entries of different runs.
const GROUP_GAP: f64 = 7.0;

/// The widest text beside the plot.
const WIDEST: f64 = 400.0;

/// The most columns; more would be too narrow for labels.
const COLUMNS: usize = 3;

enum Sample<'a> {
    Line(&'a Stroke),
    Area(usize),
}

struct Entry<'a> {
    label: &'a str,
    sample: Sample<'a>,
}

impl Entry<'_> {
    fn colour(&self) -> usize {
        match self.sample {
            Sample::Line(stroke) => stroke.colour,
            Sample::Area(colour) => colour,
        }
    }
}

/// An entry at its place, counted from the upper left corner of the legend.
struct Item<'a> {
    sample: Sample<'a>,
    lines: Vec<String>,
    x: f64,
    y: f64,
}

/// A legend whose entries have their places.
pub(super) struct Legend<'a> {
    items: Vec<Item<'a>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The entries: the series in order, each band after the last series of its colour.
fn entries(chart: &Chart) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry> = chart
        .series
        .iter()
        .filter(|s| !s.label.trim().is_empty())
        .map(|s| Entry { label: &s.label, sample: Sample::Line(&s.stroke) })
        .collect();
    for band in chart.bands.iter().filter(|b| !b.label.trim().is_empty()) {
        let last = entries.iter().rposition(|e| e.colour() == band.colour);
        let entry = Entry { label: &band.label, sample: Sample::Area(band.colour) };
        entries.insert(last.map_or(entries.len(), |i| i + 1), entry);
    }
    entries
}

/// How many entries stand together: neighbours of one colour, which belong to one run.
fn groups(entries: &[Entry]) -> Vec<usize> {
    let groups: Vec<usize> = entries.chunk_by(|a, b| a.colour() == b.colour()).map(<[Entry]>::len).collect();
    // A single colour says nothing about what belongs together.
    if groups.len() == 1 { vec![1; entries.len()] } else { groups }
}

/// Fills columns of a given height with whole groups from the left; the column of each group.
fn fill(heights: &[usize], capacity: usize) -> Vec<usize> {
    let (mut column, mut used) = (0, 0);
    heights
        .iter()
        .map(|&height| {
            if used > 0 && used + height > capacity {
                column += 1;
                used = 0;
            }
            used += height;
            column
        })
        .collect()
}

/// One way to set the entries: their lines of text, and the column of each.
struct Plan {
    lines: Vec<Vec<String>>,
    columns: Vec<usize>,
    column_width: f64,
    cost: usize,
}

/// Sets the entries in at most `n` columns, as low as possible.
fn plan(entries: &[Entry], groups: &[usize], width: f64, n: usize) -> Plan {
    let column_width = (width + GUTTER) / n as f64 - GUTTER;
    let room = column_width - SAMPLE - GAP;
    let lines: Vec<Vec<String>> = entries.iter().map(|e| text::wrap(e.label, TEXT.size, room)).collect();
    let mut rest = &lines[..];
    let heights: Vec<usize> = groups
        .iter()
        .map(|&size| {
            // The sizes of the groups add up to the number of entries.
            let (group, after) = rest.split_at(size);
            rest = after;
            group.iter().map(Vec::len).sum()
        })
        .collect();
    let total: usize = heights.iter().sum();
    let (capacity, filled) = (total.div_ceil(n)..=total)
        .map(|capacity| (capacity, fill(&heights, capacity)))
        .find(|(_, filled)| filled.last().is_none_or(|&last| last < n))
        .unwrap_or((total, vec![0; groups.len()]));
    let columns =
        filled.iter().zip(groups).flat_map(|(&column, &size)| std::iter::repeat_n(column, size)).collect();
    Plan {
        columns,
        column_width,
        // A broken label is harder to read, so it must save more than it costs. Every entry has a
        // line at least, since those without a label are not listed.
        cost: capacity + total - lines.len(),
        lines,
    }
}

impl<'a> Legend<'a> {
    /// Sets the legend in columns, to go below the plot.
    pub(super) fn below(chart: &'a Chart, width: f64) -> Self {
        let entries = entries(chart);
        let groups = groups(&entries);
        let mut best = plan(&entries, &groups, width, 1);
        for n in 2..=COLUMNS {
            let other = plan(&entries, &groups, width, n);
            if other.cost < best.cost {
                best = other;
            }
        }
        let mut legend = Self::empty(width);
        let (mut column, mut y) = (0, 0.0);
        for ((entry, lines), of) in entries.into_iter().zip(best.lines).zip(best.columns) {
            if of != column {
                (column, y) = (of, 0.0);
            }
            let x = column as f64 * (best.column_width + GUTTER);
            y = legend.push(entry, lines, (x, y));
        }
        legend
    }

    /// Sets the legend in one column, to go beside the plot.
    pub(super) fn beside(chart: &'a Chart) -> Self {
        let entries = entries(chart);
        let text_width = entries
            .iter()
            .map(|e| text::width(e.label, TEXT.size))
            .fold(0.0, f64::max)
            // Rounded up, lest a rounding error break the widest label.
            .ceil()
            .min(WIDEST);
        let mut legend = Self::empty(SAMPLE + GAP + text_width);
        let mut y = 0.0;
        let mut last = entries.first().map(Entry::colour);
        for entry in entries {
            let colour = Some(entry.colour());
            if colour != last {
                y += GROUP_GAP;
                last = colour;
            }
            let lines = text::wrap(entry.label, TEXT.size, text_width);
            y = legend.push(entry, lines, (0.0, y));
        }
        legend
    }

    fn empty(width: f64) -> Self {
        Self { items: Vec::new(), width, height: 0.0 }
    }

    /// Adds an entry with its upper left corner at a place; returns where it ends.
    fn push(&mut self, entry: Entry<'a>, lines: Vec<String>, (x, y): Place) -> f64 {
        let end = y + lines.len() as f64 * LINE;
        self.height = self.height.max(end);
        self.items.push(Item { sample: entry.sample, lines, x, y });
        end
    }

    /// Draws the legend with its upper left corner at a place.
    pub(super) fn draw(&self, out: &mut String, (left, top): Place) {
        for item in &self.items {
            let x = left + item.x;
            let mut y = top + item.y + LINE / 2.0;
            match item.sample {
                Sample::Line(stroke) => curve_sample(out, stroke, (x, y), SAMPLE),
                Sample::Area(colour) => band_sample(out, colour, (x, y), SAMPLE),
            }
            for line in &item.lines {
                // A third of the size below the middle, capitals look centred.
                let at = (x + SAMPLE + GAP, y + 0.35 * TEXT.size);
                text::line(out, line, at, TEXT);
                y += LINE;
            }
        }
    }
}
