//! VALE: a learning switch that forwards whole batches.
