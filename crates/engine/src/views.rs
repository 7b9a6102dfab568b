//! Views of an image: flipped, and shifted with its edges reflected.
//!
//! A worker that has [`Views`] takes the mean gradient over several views of each sample instead of the
//! gradient of the sample (De et al. 2022). Which views they are is decided elsewhere, for each sample and
//! each call.

use crate::layer::loss::Label;
use crate::worker::Samples;

/// What may happen to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Augment {
    /// Whether left and right are exchanged with probability ½.
    pub flip: bool,
    /// The most pixels an image is shifted in each direction.
    pub shift: u32,
    /// K, the views of a sample.
    pub views: usize,
}

/// One view of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Whether left and right are exchanged, before the shift.
    pub flip: bool,
    /// By how many pixels the window moves down and to the right.
    pub shift: [i32; 2],
}

impl Augment {
    /// Why it does not fit images of this height, width and number of channels, if so.
    pub fn misfit(&self, [height, width, _]: [usize; 3]) -> Option<String> {
        if height < 2 || width < 2 {
            return Some("augment: only for images, which have rows and columns".into());
        }
        let most = (height.min(width) - 1) / 2;
        (self.shift as usize > most).then(|| {
            format!("augment = shift:{}: at most {most} for images of {height} × {width}", self.shift)
        })
    }

    /// Draws a view; `below(n)` gives uniform integers below n.
    pub fn draw(&self, below: &mut dyn FnMut(u32) -> u32) -> View {
        let flip = self.flip && below(2) == 1;
        let mut along = || match self.shift {
            0 => 0,
            most => below(2 * most + 1) as i32 - most as i32,
        };
        View { flip, shift: [along(), along()] }
    }
}

impl View {
    /// Turns an image (rows of pixels of channels) into this view of it. Beyond an edge the image is
    /// reflected, the edge itself not repeated; shifts are at most half of a side.
    pub fn apply(&self, [height, width, channels]: [usize; 3], image: &mut [f32]) {
        let pitch = width * channels;
        if self.flip {
            for row in image.chunks_exact_mut(pitch) {
                for x in 0..width / 2 {
                    let (left, right) = row.split_at_mut((width - 1 - x) * channels);
                    left[x * channels..(x + 1) * channels].swap_with_slice(&mut right[..channels]);
                }
            }
        }
        let [down, right] = self.shift;
        moved(image, height, pitch, down);
        if right != 0 {
            image.chunks_exact_mut(pitch).for_each(|row| moved(row, width, channels, right));
        }
    }
}

/// Moves a window over `count` items of `size` numbers each by `shift` items: item i becomes item i + shift,
/// or its reflection at the edge.
fn moved(items: &mut [f32], count: usize, size: usize, shift: i32) {
    let by = shift.unsigned_abs() as usize;
    // What is out of reach of the image is left as it is: `Augment::misfit` has refused it.
    if by == 0 || 2 * by >= count {
        return;
    }
    let kept = count - by;
    if shift > 0 {
        items.copy_within(by * size..count * size, 0);
        // The last item that is there is at kept − 1; what follows is its reflection.
        for i in kept..count {
            let from = 2 * (kept - 1) - i;
            items.copy_within(from * size..(from + 1) * size, i * size);
        }
    } else {
        items.copy_within(0..kept * size, by * size);
        for i in 0..by {
            let from = 2 * by - i;
            items.copy_within(from * size..(from + 1) * size, i * size);
        }
    }
}

/// Views of the samples that a worker will be asked for.
#[derive(Clone, Debug, Default)]
pub struct Views {
    /// K.
    count: usize,
    samples: Vec<u32>,
    /// K for each of `samples`.
    views: Vec<View>,
}

impl Views {
    /// Forgets all views and makes room for `count` of each sample.
    pub fn clear(&mut self, count: usize) {
        self.count = count;
        self.samples.clear();
        self.views.clear();
    }

    /// Adds a sample with its views, as many as [`Views::clear`] was told.
    pub fn push(&mut self, sample: u32, views: impl Iterator<Item = View>) {
        self.samples.push(sample);
        self.views.extend(views.take(self.count));
        self.views.resize(self.samples.len() * self.count, View::default());
    }

    /// The numbers under which [`Seen`] serves the views of a group, written to `numbers`; false if a sample
    /// of the group has none.
    pub(crate) fn of(&self, group: &[u32], numbers: &mut Vec<u32>) -> bool {
        numbers.clear();
        let mut next = 0;
        for sample in group {
            // Groups come in the order in which they were announced, mostly.
            let found = self.samples[next..].iter().position(|known| known == sample).map(|at| next + at);
            let found = found.or_else(|| self.samples.iter().position(|known| known == sample));
            let Some(at) = found else { return false };
            numbers.extend((at * self.count) as u32..((at + 1) * self.count) as u32);
            next = at + 1;
        }
        true
    }
}

/// The views of samples as samples of their own.
pub(crate) struct Seen<'a> {
    pub(crate) samples: &'a dyn Samples,
    pub(crate) views: &'a Views,
    pub(crate) shape: [usize; 3],
}

impl Seen<'_> {
    fn sample(&self, number: u32) -> u32 {
        self.views.samples[number as usize / self.views.count]
    }
}

impl Samples for Seen<'_> {
    fn count(&self) -> usize {
        self.views.views.len()
    }

    fn copy_input(&self, number: u32, out: &mut [f32]) {
        self.samples.copy_input(self.sample(number), out);
        self.views.views[number as usize].apply(self.shape, out);
    }

    fn label(&self, number: u32) -> Label<'_> {
        self.samples.label(self.sample(number))
    }

    fn weight(&self, number: u32) -> f32 {
        self.samples.weight(self.sample(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, pixel by pixel: pixel (y, x) of a view is pixel (y + dy, x + dx) of the flipped image,
    /// reflected at the edges.
    fn by_hand(view: View, [height, width, channels]: [usize; 3], image: &[f32]) -> Vec<f32> {
        let reflected = |at: i32, count: usize| -> usize {
            let last = count as i32 - 1;
            (if at < 0 {
                -at
            } else if at > last {
                2 * last - at
            } else {
                at
            }) as usize
        };
        let mut out = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let from_y = reflected(y as i32 + view.shift[0], height);
                let mut from_x = reflected(x as i32 + view.shift[1], width);
                if view.flip {
                    from_x = width - 1 - from_x;
                }
                let at = (from_y * width + from_x) * channels;
                out.extend_from_slice(&image[at..at + channels]);
            }
        }
        out
    }

    #[test]
    fn views_are_what_they_say() {
        for shape in [[5, 7, 3], [4, 4, 1], [9, 6, 2]] {
            let image: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
            let most = (shape[0].min(shape[1]) as i32 - 1) / 2;
            for flip in [false, true] {
                for down in -most..=most {
                    for right in -most..=most {
                        let view = View { flip, shift: [down, right] };
                        let mut found = image.clone();
                        view.apply(shape, &mut found);
                        assert_eq!(found, by_hand(view, shape, &image), "{shape:?} {view:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn draws_cover_everything_allowed_and_nothing_else() {
        let augment = Augment { flip: true, shift: 1, views: 1 };
        let mut state = 1u64;
        let mut below = |bound: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % u64::from(bound)) as u32
        };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let View { flip, shift } = augment.draw(&mut below);
            seen.insert((flip, shift));
        }
        assert_eq!(seen.len(), 18);
        assert!(seen.iter().all(|(_, shift)| shift.iter().all(|by| by.abs() <= 1)));
        let none = Augment { flip: false, shift: 0, views: 1 };
        assert_eq!(none.draw(&mut |_| unreachable!()), View::default());
        assert!(augment.misfit([1, 14, 1]).is_some() && augment.misfit([28, 28, 1]).is_none());
        assert!(Augment { shift: 14, ..augment }.misfit([28, 28, 1]).unwrap().contains("at most 13"));
    }
}
