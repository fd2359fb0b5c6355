//! Gauge values, and how each type lies in a 64-bit word.

use std::fmt;

use crate::schema::ValueType;

/// A gauge's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of a u64 gauge.
    U64(u64),
    /// Of an i64 gauge.
    I64(i64),
    /// Of an f64 gauge.
    F64(f64),
}

impl Value {
    /// The word's meaning under a type.
    #[must_use]
    pub fn from_bits(value_type: ValueType, bits: u64) -> Self {
        match value_type {
            ValueType::U64 => Value::U64(bits),
            ValueType::I64 => Value::I64(bits.cast_signed()),
            ValueType::F64 => Value::F64(f64::from_bits(bits)),
        }
    }

    /// As a floating point number; integers beyond 2^53 are rounded.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Value::U64(n) => n as f64,
            Value::I64(n) => n as f64,
            Value::F64(x) => x,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U64(n) => n.fmt(f),
            Value::I64(n) => n.fmt(f),
            Value::F64(x) => x.fmt(f),
        }
    }
}

/// A type that gauges hold: u64, i64 or f64.
pub trait GaugeValue: Copy + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// The schema's word for it.
    const TYPE: ValueType;
    /// The word that stands for the value; `None` for NaN, which no gauge takes.
    fn to_bits(self) -> Option<u64>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for i64 {}
    impl Sealed for f64 {}
}

impl GaugeValue for u64 {
    const TYPE: ValueType = ValueType::U64;

    #[inline(always)]
    fn to_bits(self) -> Option<u64> {
        Some(self)
    }
}

impl GaugeValue for i64 {
    const TYPE: ValueType = ValueType::I64;

    #[inline(always)]
    fn to_bits(self) -> Option<u64> {
        Some(self.cast_unsigned())
    }
}

impl GaugeValue for f64 {
    const TYPE: ValueType = ValueType::F64;

    #[inline(always)]
    fn to_bits(self) -> Option<u64> {
        (!self.is_nan()).then(|| f64::to_bits(self))
    }
}
