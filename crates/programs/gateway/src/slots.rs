//! A table of values ([`NumberedValues`]) with reusable indices. An id ([`SlotId`]) is an index with a generation,
//! which changes with each reuse: if a value was removed, its old id finds nothing.

/// The id of a value in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SlotId {
    /// Index of the value's place in the table.
    pub index: u32,
    /// How often the place has been reused, modulo 2^24.
    pub generation: u32,
}

/// Mask of a generation: 24 bits.
const GENERATION: u32 = (1 << 24) - 1;

#[derive(Debug)]
struct NumberedPlace<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by id, in places that are reused.
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
    /// Adds a value. Returns its id.
    pub fn insert(&mut self, value: T) -> SlotId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(NumberedPlace { generation: 0, value: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.value = Some(value);
        SlotId { index, generation: place.generation }
    }

    /// Returns the value with an id, or `None` if it was removed.
    pub fn get(&mut self, id: SlotId) -> Option<&mut T> {
        let place = self.places.get_mut(id.index as usize)?;
        place.value.as_mut().filter(|_| place.generation == id.generation)
    }

    /// Removes and returns the value with an id; `None` if it was removed before.
    pub fn remove(&mut self, id: SlotId) -> Option<T> {
        self.get(id)?;
        let place = &mut self.places[id.index as usize];
        place.generation = (place.generation + 1) & GENERATION;
        self.free.push(id.index);
        place.value.take()
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns whether the table has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.value.as_ref())
    }

    /// Returns the ids of all values.
    pub fn ids(&self) -> Vec<SlotId> {
        self.ids_of(|_| true)
    }

    /// Returns the ids of the values for which `is_meant` returns `true`.
    pub fn ids_of(&self, mut is_meant: impl FnMut(&T) -> bool) -> Vec<SlotId> {
        let meant = self.places.iter().enumerate().filter(|(_, place)| place.value.as_ref().is_some_and(&mut is_meant));
        meant.map(|(index, place)| SlotId { index: index as u32, generation: place.generation }).collect()
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
        assert_eq!((values.ids(), values.ids_of(|value| *value == "a")), (vec![second], vec![]));
        assert_eq!(values.values().collect::<Vec<_>>(), [&"b"]);
    }
}
