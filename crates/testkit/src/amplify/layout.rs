//! Which ids the copies get.
//!
//! The elements of a kind are cut into runs of neighbours in the id space. The id space of the output is a row
//! of slots: for position p there are K slots, one for each copy, and copy k has run `p + k·R/K mod R` there.
//! So each stretch of the output holds runs of all copies, of different ages, as the planet holds edits of all
//! places side by side, and the ids of a copy go up except where it wraps around.
//!
//! Distances within and after a run are scaled so that the largest id comes near a target. Where an id begins
//! is found by position and copy in two tables: `8·R + 4·R·K` bytes.

use super::AmplifyError;

/// How a kind is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The largest id to come near to.
    pub largest_id: i64,
    /// A greater distance to the next id ends a run.
    pub gap: i64,
    /// Elements in a run at most.
    pub longest: usize,
}

pub(super) struct Layout {
    copies: usize,
    /// First element of each run, and the number of elements at the end.
    runs: Vec<u32>,
    /// Of each element: its run, and how far its id is from that of the run's first element.
    places: Vec<(u32, u32)>,
    /// Where the slots of a position begin.
    rows: Vec<i64>,
    /// How far into the row each slot begins: position × copies + copy.
    slots: Vec<u32>,
    /// One more than the largest id given out.
    pub end: i64,
}

/// A piece of a run, for one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u32,
    pub end: u32,
    pub copy: u32,
}

impl Layout {
    pub fn new(ids: &[i64], copies: usize, shape: Shape) -> Result<Layout, AmplifyError> {
        let last = ids.last().copied().unwrap_or(1).max(1);
        let factor = shape.largest_id as f64 / (copies as f64 * last as f64);
        // A row must fit into 32 bits; only gaps of a third of the whole id space are cut by this.
        let widest = i64::from(u32::MAX) / (copies as i64 + 1);
        let scaled = |distance: i64| ((distance as f64 * factor).round() as i64).clamp(1, widest);
        let (mut runs, mut places, mut spans) = (Vec::new(), Vec::with_capacity(ids.len()), Vec::new());
        let mut offset = 0i64;
        for (i, id) in ids.iter().enumerate() {
            let distance = i.checked_sub(1).map(|before| id - ids[before]);
            let first = runs.last().copied().unwrap_or(0) as usize;
            match distance {
                Some(distance)
                    if distance <= shape.gap
                        && i - first < shape.longest
                        && offset + scaled(distance) < widest / 2 =>
                {
                    offset += scaled(distance);
                }
                _ => {
                    if let Some(distance) = distance {
                        spans.push((offset + scaled(distance)).min(widest));
                    }
                    runs.push(i as u32);
                    offset = 0;
                }
            }
            places.push((runs.len() as u32 - 1, offset as u32));
        }
        if !ids.is_empty() {
            spans.push(offset + 1);
        }
        let count = runs.len();
        runs.push(ids.len() as u32);
        let (mut rows, mut slots) = (Vec::with_capacity(count), Vec::with_capacity(count * copies));
        let mut next = 1i64;
        for position in 0..count {
            rows.push(next);
            let mut in_row = 0i64;
            for copy in 0..copies {
                slots.push(in_row as u32);
                in_row += spans[(position + copy * count / copies) % count];
            }
            next = next.checked_add(in_row).ok_or(AmplifyError::TooMany(copies))?;
        }
        Ok(Layout {
            copies,
            runs,
            places,
            rows,
            slots,
            end: next,
        })
    }

    fn run_count(&self) -> usize {
        self.rows.len()
    }

    /// How far the runs of a copy are shifted.
    fn shift(&self, copy: usize) -> usize {
        copy * self.run_count() / self.copies
    }

    /// The id of an element's copy. O(1).
    pub fn id(&self, element: u32, copy: u32) -> i64 {
        let (run, offset) = self.places[element as usize];
        let count = self.run_count();
        let position = (run as usize + count - self.shift(copy as usize)) % count;
        let slot = self.slots[position * self.copies + copy as usize];
        self.rows[position] + i64::from(slot) + i64::from(offset)
    }

    /// All runs of all copies in the order of their ids.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        let count = self.run_count();
        (0..count).flat_map(move |position| {
            (0..self.copies).map(move |copy| {
                let run = (position + self.shift(copy)) % count;
                Piece {
                    start: self.runs[run],
                    end: self.runs[run + 1],
                    copy: copy as u32,
                }
            })
        })
    }

    /// The pieces gathered into lists of this many elements, the last one shorter.
    pub fn blocks(&self, elements: usize) -> impl Iterator<Item = Vec<Piece>> + '_ {
        let mut pieces = self.pieces();
        let mut rest: Option<Piece> = None;
        std::iter::from_fn(move || {
            let (mut block, mut room) = (Vec::new(), elements as u32);
            while room > 0 {
                let Some(piece) = rest.take().or_else(|| pieces.next()) else {
                    break;
                };
                let cut = piece.end.min(piece.start + room);
                if cut < piece.end {
                    rest = Some(Piece { start: cut, ..piece });
                }
                room -= cut - piece.start;
                block.push(Piece { end: cut, ..piece });
            }
            (!block.is_empty()).then_some(block)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_go_up_and_every_copy_of_every_element_has_one(
            gaps in proptest::collection::vec(prop_oneof![8 => 1i64..4, 2 => 1i64..1_000_000, 1 => Just(i64::from(u32::MAX) * 8)], 0..200),
            copies in 1usize..12, longest in 1usize..30, largest_id in 1i64..20_000_000_000, block in 1usize..50,
        ) {
            let ids: Vec<i64> = gaps.iter().scan(0, |id, gap| { *id += gap; Some(*id) }).collect();
            let shape = Shape { largest_id, gap: 1000, longest };
            let layout = Layout::new(&ids, copies, shape).unwrap();
            let mut all = Vec::new();
            let mut seen = std::collections::BTreeSet::new();
            for pieces in layout.blocks(block) {
                let size: u32 = pieces.iter().map(|p| p.end - p.start).sum();
                prop_assert!(size as usize <= block);
                for piece in pieces {
                    for i in piece.start..piece.end {
                        all.push(layout.id(i, piece.copy));
                        prop_assert!(seen.insert((i, piece.copy)));
                    }
                }
            }
            prop_assert_eq!(all.len(), ids.len() * copies);
            prop_assert!(all.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(all.first().is_none_or(|id| *id >= 1) && all.last().is_none_or(|id| *id < layout.end));
        }
    }
}
