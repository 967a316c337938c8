//! Enumerations that are written as words.

/// Declares an enumeration with the word of each value as written in files, once.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $value:ident $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(JsonSchema))]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// Every value, in the order of its declaration.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// The word that is written in files.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }

            /// The value of a word.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.word() == word)
            }
        }
    };
}
