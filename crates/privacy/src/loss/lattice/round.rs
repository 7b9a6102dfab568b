//! One round on a lattice: its cells split for the upper end, merged for the lower one.

use super::law::{End, Law, TINY, Window};
use crate::loss::cells::OneRound;

/// How close, in steps, the search for a merged cell's end brings its loss to a lattice point, and how far below
/// the point its proved loss may lie. The farthest of all is charged to ε for every round.
const SOLVED: f64 = 1e-7;
const MOST_SHORT: f64 = 1e-5;

/// Every cell's mass split between its ends.
pub(super) fn split(
    round: &OneRound<'_>,
    origin: f64,
    step: f64,
    (low, high): (f64, f64),
    window: Window,
) -> Law {
    let first = (((low - origin) / step).floor() as i64).max(window.bottom);
    let last = (((high - origin) / step).ceil() as i64).min(window.top).max(first + 1);
    let mut mass = vec![0.0; (last - first + 1) as usize];
    let (mut left, mut right) = (round.edge(f64::NEG_INFINITY), round.edge(origin + first as f64 * step));
    // Losses below the window are raised to its bottom.
    let below = round.cell(&left, &right);
    mass[0] = below.p + below.error_of_p;
    let shrunk = -(-step).exp_m1();
    for i in first..last {
        std::mem::swap(&mut left, &mut right);
        let (lower, upper) = (origin + i as f64 * step, origin + (i + 1) as f64 * step);
        round.move_edge(&mut right, upper, Some(&left));
        let cell = round.cell(&left, &right);
        // (p − up)·e^{−lower} + up·e^{−upper} = q. Both numbers are rounded up, which only raises losses.
        let p = (cell.p + cell.error_of_p).max(0.0);
        let factor = lower.exp_m1();
        let difference = cell.gain - factor * cell.q;
        let error = cell.error_of_gain
            + factor.abs() * (cell.error_of_q + 4.0 * f64::EPSILON * cell.q)
            + 4.0 * f64::EPSILON * (cell.gain.abs() + difference.abs());
        let up = (difference + error) / shrunk;
        let up = if up.is_nan() { p } else { up.clamp(0.0, p) };
        let at = (i - first) as usize;
        mass[at] += p - up;
        mass[at + 1] += up;
    }
    let beyond = round.cell(&right, &round.edge(f64::INFINITY));
    let mut above = beyond.p + beyond.error_of_p + round.left_out();
    let atom = round.atom().0;
    if last < 0 {
        above += atom;
    } else {
        mass[(-first).max(0) as usize] += atom;
    }
    let mut law = Law { first, mass, above };
    law.without_tiny(End::Upper);
    law
}

/// Cells whose own loss ln(p/q) lies on the lattice, and how far below it at most, in steps.
pub(super) fn merged(
    round: &OneRound<'_>,
    origin: f64,
    step: f64,
    (low, high): (f64, f64),
    window: Window,
) -> (Law, f64) {
    let first = (((low - origin) / step).floor() as i64).max(window.bottom).min(0);
    let last = (((high - origin) / step).ceil() as i64).clamp(1, window.top.max(1));
    let mut mass = vec![0.0; (last - first + 1) as usize];
    // The central cell has its loss at the origin, or just above it.
    let (from, to) = round.centre(step);
    let central = round.cell(&round.edge(from), &round.edge(to));
    mass[(-first) as usize] += (central.p - central.error_of_p).max(0.0) + round.atom().1;
    let mut short = 0.0_f64;
    let high = high.min(origin + window.top as f64 * step);
    let low = low.max(origin + window.bottom as f64 * step);
    for (sign, start, limit) in [(1.0, to, high), (-1.0, from, low)] {
        let mut at = start;
        let mut near = round.edge(at);
        let mut far = near.clone();
        while sign * (limit - at) > 0.0 {
            let place = sign * (at - origin) / step;
            // The next point at least a quarter of a step inside the cell, so that cells are about a step wide.
            // Where the law falls so steeply that no cell reaches it, one that is nearer.
            let mut found = None;
            let mut reached = at;
            for inside in [0.25, 0.01] {
                let index = sign * (place + inside).ceil();
                if found.is_some_and(|(_, _, other)| other == index) {
                    break;
                }
                let wanted = origin + index * step;
                // In steps, counted away from the centre.
                let clamped = |length: f64| at + sign * step * length.clamp(0.02, 3.5);
                let mut end = clamped(2.0 * (wanted - at) * sign / step);
                let mut is_solved = false;
                for _ in 0..8 {
                    round.move_edge(&mut far, end, Some(&near));
                    reached = end;
                    let cell = if sign > 0.0 { round.cell(&near, &far) } else { round.cell(&far, &near) };
                    if cell.p.is_nan() || cell.p <= TINY || cell.q <= 0.0 {
                        found = None;
                        break;
                    }
                    let (loss, error) = cell.loss();
                    found = Some((cell, loss - error, index));
                    let gap = wanted - loss;
                    is_solved = gap.abs() < SOLVED * step;
                    let next = clamped(sign * (end + 2.0 * gap - at) / step);
                    if is_solved || next == end {
                        break;
                    }
                    end = next;
                }
                if is_solved || found.is_none() {
                    break;
                }
            }
            if let Some((cell, loss, index)) = found {
                let missing = (origin + index * step - loss) / step;
                let index = if missing <= MOST_SHORT {
                    short = short.max(missing);
                    index
                } else {
                    ((loss - origin) / step).floor()
                };
                if index >= first as f64 {
                    let at = index.min(last as f64) as i64 - first;
                    mass[at as usize] += (cell.p - cell.error_of_p).max(0.0);
                }
            }
            std::mem::swap(&mut near, &mut far);
            at = reached;
        }
        if sign > 0.0 {
            // All that is left has at least the loss of its lower end.
            let rest = round.cell(&near, &round.edge(f64::INFINITY));
            let index = ((at - origin) / step - 0.01).floor();
            mass[(index.min(last as f64) as i64 - first) as usize] += (rest.p - rest.error_of_p).max(0.0);
        }
    }
    let mut law = Law { first, mass, above: 0.0 };
    law.without_tiny(End::Lower);
    (law, short)
}
