//! The macros that define the numbers of the wire.
//!
//! `enum_of_the_wire!` defines a newtype with named constants: an unknown number is a value and not
//! an error, and prints as hex. `flags_of_the_wire!` defines a bit set in the same way: unknown
//! bits survive a round trip. `fixed_messages!`, `empty_message!` and `buffer_messages!` define messages that share a
//! layout. None contains any policy about which values are legal.

/// Defines the part that the two tables below share: the newtype, its named constants, its width as a field of a
/// structure, and that it is displayed as it is printed for debugging.
macro_rules! newtype_of_the_wire {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $( $(#[$vmeta:meta])* $variant:ident = $value:expr ),*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $(
                #[doc = concat!("`", stringify!($variant), "` = ", stringify!($value), ".")]
                $(#[$vmeta])*
                pub const $variant: Self = Self($value);
            )*
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self, f)
            }
        }

        newtype_field! { $name: $int }
    };
}

/// Makes a newtype over an integer a field of the structures that `records!` defines.
macro_rules! newtype_field {
    ($name:ident: $int:ty) => {
        impl $crate::fscc::record::Field for $name {
            const SIZE: usize = size_of::<$int>();
            fn get(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::Malformed> {
                $crate::fscc::record::Field::get(reader).map(Self)
            }
            fn put(&self, out: &mut impl bytes::BufMut) {
                $crate::fscc::record::Field::put(&self.0, out);
            }
        }
    };
}

/// Defines a newtype over an integer with named constants that preserves unknown numbers.
macro_rules! enum_of_the_wire {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $( $(#[$vmeta:meta])* $variant:ident = $value:expr ),* $(,)?
        }
    )*) => {$(
        newtype_of_the_wire! {
            $(#[$meta])*
            pub struct $name($int) { $( $(#[$vmeta])* $variant = $value ),* }
        }

        impl $name {
            /// Every value that has a name, in the order of the table.
            pub const KNOWN: &'static [Self] = &[$( Self::$variant ),*];

            /// Returns the name of the value, if it has one.
            pub fn name(self) -> Option<&'static str> {
                $( if self == Self::$variant { return Some(stringify!($variant)); } )*
                None
            }

            /// Returns whether the value has a name here.
            pub fn is_known(self) -> bool {
                self.name().is_some()
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }
    )*};
}

/// Defines a bit set over an integer with named members that preserves unknown bits.
macro_rules! flags_of_the_wire {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $( $(#[$vmeta:meta])* $variant:ident = $value:expr ),* $(,)?
        }
    )*) => {$(
        newtype_of_the_wire! {
            $(#[$meta])*
            pub struct $name($int) { $( $(#[$vmeta])* $variant = $value ),* }
        }

        impl $name {
            /// Every named member, in the order of the table.
            pub const KNOWN: &'static [(&'static str, Self)] =
                &[$( (stringify!($variant), Self::$variant) ),*];

            /// The set without members.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// The bits as encoded on the wire.
            pub const fn bits(self) -> $int {
                self.0
            }

            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Whether every bit of `other` is set here.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is set here.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// This set with the bits of `other` removed.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// This set with the bits of `other` added (`|` for constants).
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// `self` when `condition` holds, else the empty set.
            #[must_use]
            pub const fn when(self, condition: bool) -> Self {
                if condition { self } else { Self(0) }
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl core::ops::BitAndAssign for $name {
            fn bitand_assign(&mut self, other: Self) {
                self.0 &= other.0;
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut rest = *self;
                let mut separator = "";
                for (name, member) in Self::KNOWN {
                    if !member.is_empty() && self.contains(*member) && rest.intersects(*member) {
                        write!(f, "{separator}{name}")?;
                        separator = "|";
                        rest = rest.without(*member);
                    }
                }
                if !rest.is_empty() || separator.is_empty() {
                    write!(f, "{separator}{:#x}", rest.0)?;
                }
                Ok(())
            }
        }
    )*};
}

/// Reads and writes a message whose body is StructureSize, padding, and the value as a field.
macro_rules! fixed_body {
    ($name:ident($size:literal, pad $pad:expr)) => {
        impl $name {
            /// StructureSize.
            pub const STRUCTURE_SIZE: u16 = $size;

            /// Reads the message, from its SMB2 header on.
            ///
            /// # Errors
            /// [`Malformed`](crate::Malformed) when the body is too short or of another size.
            pub fn read(message: &[u8]) -> Result<Self, crate::Malformed> {
                let mut body =
                    crate::codec::Reader::body(message, Self::STRUCTURE_SIZE, stringify!($name))?;
                body.skip($pad)?;
                crate::fscc::record::Field::get(&mut body)
            }

            /// Appends the body; `start` is the position of the header in `out`.
            pub fn encode(&self, out: &mut bytes::BytesMut, _start: usize) {
                // An odd StructureSize counts a byte of a variable part, which these messages lack.
                crate::codec::put_fixed::<{ $size & !1 }>(out, |out| {
                    bytes::BufMut::put_u16_le(out, Self::STRUCTURE_SIZE);
                    bytes::BufMut::put_bytes(out, 0, $pad);
                    crate::fscc::record::Field::put(self, out);
                });
            }
        }

        const _: () = assert!(
            2 + $pad + <$name as crate::fscc::record::Field>::SIZE == $size & !1,
            "the fields have the length that StructureSize names"
        );
    };
}

/// Defines messages whose bodies are StructureSize, perhaps padding, and fields of fixed width, written as in
/// `records!`.
macro_rules! fixed_messages {
    ($(
        $(#[$meta:meta])*
        $name:ident($size:literal $(, pad $pad:literal)?) { $( $fields:tt )+ }
    )*) => {$(
        $crate::fscc::record::record! { $(#[$meta])* $name { $( $fields )+ } }
        fixed_body! { $name($size, pad 0 $( + $pad )?) }
    )*};
}

/// Defines a message whose body is StructureSize, and reserved bytes if it is more than 2.
macro_rules! empty_message {
    ($(#[$meta:meta])* pub struct $name:ident($size:literal);) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name;

        impl crate::fscc::record::Field for $name {
            const SIZE: usize = 0;
            fn get(_: &mut crate::codec::Reader<'_>) -> Result<Self, crate::Malformed> {
                Ok(Self)
            }
            fn put(&self, _: &mut impl bytes::BufMut) {}
        }
        fixed_body! { $name($size, pad $size - 2) }
    };
}

/// Defines messages whose bodies are StructureSize, fields of fixed width as in `records!`, and one buffer that follows
/// them; offset and length of the buffer are where the square brackets are. `$put` appends the buffer. With
/// `none_if_empty`, the offset of an empty buffer is zero. `as |place| ...` says how the buffer is read where a place
/// outside the message is no error, or one inside it may be; the expression sees the other fields and, under the
/// buffer's name, the result of the usual reading.
macro_rules! buffer_messages {
    ($(
        $(#[$meta:meta])*
        $name:ident($size:literal $(; pad $pad:literal)?, $put:path $(, $none:ident)?) {
            $( $(#[$bmeta:meta])* $before:ident: $before_ty:ty $(, pad $before_pad:literal)?; )*
            [ $( $part:ident: $part_ty:ty $(, pad $part_pad:literal)?; )+ ]
            $( $(#[$ameta:meta])* $after:ident: $after_ty:ty $(, pad $after_pad:literal)?; )*
            => $(#[$tmeta:meta])* $buffer:ident $(, as |$place:pat_param| $read:expr)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name<'a> {
            $( $(#[$bmeta])* pub $before: $before_ty, )*
            $( $(#[$ameta])* pub $after: $after_ty, )*
            $(#[$tmeta])*
            pub $buffer: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// StructureSize.
            pub const STRUCTURE_SIZE: u16 = $size;

            /// Reads the message, from its SMB2 header on.
            ///
            /// # Errors
            /// [`Malformed`](crate::Malformed) when the body is too short, or the buffer is outside the message.
            pub fn read(message: &'a [u8]) -> Result<Self, crate::Malformed> {
                use crate::fscc::record::Field;
                let mut body = crate::codec::Reader::body(
                    message,
                    Self::STRUCTURE_SIZE,
                    stringify!($name),
                )?;
                $( body.skip($pad)?; )?
                $(
                    let $before = <$before_ty as Field>::get(&mut body)?;
                    $( body.skip($before_pad)?; )?
                )*
                let mut place = crate::codec::Place::default();
                $(
                    place.$part = <$part_ty as Field>::get(&mut body)?.into();
                    $( body.skip($part_pad)?; )?
                )+
                $(
                    let $after = <$after_ty as Field>::get(&mut body)?;
                    $( body.skip($after_pad)?; )?
                )*
                let $buffer = body.buffer(message, place.offset, place.length);
                $(
                    let $place = place;
                    let $buffer = $read;
                )?
                Ok(Self { $( $before, )* $( $after, )* $buffer: $buffer? })
            }

            /// Appends the body; `start` is the position of the header in `out`. The buffer must not be longer than
            /// its length field can say.
            pub fn encode(&self, out: &mut bytes::BytesMut, _start: usize) {
                use crate::fscc::record::Field;
                // An odd StructureSize counts a byte of the buffer.
                const FIXED: usize = $size & !1;
                let place = crate::codec::Place::behind(FIXED, self.$buffer)$( .$none() )?;
                crate::codec::put_fixed::<FIXED>(out, |out| {
                    bytes::BufMut::put_u16_le(out, Self::STRUCTURE_SIZE);
                    $( bytes::BufMut::put_bytes(out, 0, $pad); )?
                    $(
                        self.$before.put(out);
                        $( bytes::BufMut::put_bytes(out, 0, $before_pad); )?
                    )*
                    $(
                        <$part_ty>::try_from(place.$part).unwrap_or(<$part_ty>::MAX).put(out);
                        $( bytes::BufMut::put_bytes(out, 0, $part_pad); )?
                    )+
                    $(
                        self.$after.put(out);
                        $( bytes::BufMut::put_bytes(out, 0, $after_pad); )?
                    )*
                });
                $put(out, self.$buffer);
            }
        }

        const _: () = assert!(
            2 $( + $pad )?
                $( + <$before_ty as crate::fscc::record::Field>::SIZE $( + $before_pad )? )*
                $( + size_of::<$part_ty>() $( + $part_pad )? )+
                $( + <$after_ty as crate::fscc::record::Field>::SIZE $( + $after_pad )? )*
                == $size & !1,
            "the fields have the length that StructureSize names"
        );
    )*};
}

#[cfg(test)]
#[allow(unreachable_pub, dead_code)]
mod tests {
    enum_of_the_wire! {
        /// A fruit.
        pub struct Fruit(u16) { APPLE = 1, PEAR = 2 }
    }
    flags_of_the_wire! {
        /// Tools.
        pub struct Tools(u8) { SAW = 1, AXE = 2 }
    }

    #[test]
    fn unknown_numbers_are_preserved_and_print_as_hex() {
        assert_eq!(
            format!("{:?} {}", Fruit(2), Fruit(0x30)),
            "PEAR Fruit(0x30)"
        );
        assert!(!Fruit(3).is_known());
        assert_eq!(Fruit::KNOWN, [Fruit::APPLE, Fruit::PEAR]);
    }

    #[test]
    fn unknown_bits_are_preserved() {
        let all = Tools::SAW | Tools::AXE | Tools(0x80);
        assert_eq!(format!("{all:?}"), "SAW|AXE|0x80");
        assert_eq!(format!("{:?}", Tools::empty()), "0x0");
        assert!(all.contains(Tools::SAW) && !Tools::SAW.contains(all));
        assert_eq!(all.without(Tools::SAW).bits(), 0x82);
        assert!(all.intersects(Tools::AXE) && !Tools::SAW.intersects(Tools::AXE));
    }
}
