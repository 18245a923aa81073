//! Values by small numbers that are given out again, each time with another generation: a number that was kept too long
//! finds nothing.

/// The number of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SlotId {
    /// Place of the value.
    pub index: u32,
    /// How often the place was given out, in 24 bits.
    pub generation: u32,
}

/// Bits of a generation.
const GENERATION: u32 = (1 << 24) - 1;

#[derive(Debug)]
struct NumberedPlace<T> {
    generation: u32,
    value: Option<T>,
}

/// The values.
#[derive(Debug)]
pub struct NumberedValues<T> {
    places: Vec<NumberedPlace<T>>,
    free: Vec<u32>,
}

impl<T> Default for NumberedValues<T> {
    fn default() -> Self {
        NumberedValues { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> NumberedValues<T> {
    /// Keeps a value.
    pub fn insert(&mut self, value: T) -> SlotId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(NumberedPlace { generation: 0, value: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.value = Some(value);
        SlotId { index, generation: place.generation }
    }

    /// The value of that number.
    pub fn get(&mut self, id: SlotId) -> Option<&mut T> {
        let place = self.places.get_mut(id.index as usize)?;
        place.value.as_mut().filter(|_| place.generation == id.generation)
    }

    /// Takes the value of that number away.
    pub fn remove(&mut self, id: SlotId) -> Option<T> {
        self.get(id)?;
        let place = &mut self.places[id.index as usize];
        place.generation = (place.generation + 1) & GENERATION;
        self.free.push(id.index);
        place.value.take()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of all values.
    pub fn ids(&self) -> Vec<SlotId> {
        let there = self.places.iter().enumerate().filter(|(_, place)| place.value.is_some());
        there.map(|(index, place)| SlotId { index: index as u32, generation: place.generation }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_back_finds_nothing() {
        let mut values = NumberedValues::default();
        let first = values.insert("a");
        assert_eq!(values.remove(first), Some("a"));
        let second = values.insert("b");
        assert_eq!(second.index, first.index);
        assert_eq!(values.get(first), None);
        assert_eq!(values.remove(first), None);
        assert_eq!((values.get(second).copied(), values.len()), (Some("b"), 1));
        assert_eq!(values.ids(), [second]);
    }
}
