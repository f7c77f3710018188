"""Plural forms by language: gettext's rule, and the categories of CLDR that Android, Qt and Apple use."""

from dataclasses import dataclass

from knnmt.languages import standard_tag


@dataclass(frozen=True)
class Plurals:
    """The rule of a language: `expression` gives the number of the form of n; `categories` name the forms in order."""

    expression: str
    categories: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many forms there are."""
        return len(self.categories)

    @property
    def header(self) -> str:
        """The rule as the header of a PO file has it."""
        return f"nplurals={self.count}; plural={self.expression};"


_ONE = Plurals("0", ("other",))
_TWO = Plurals("(n != 1)", ("one", "other"))
_ABOVE_ONE = Plurals("(n > 1)", ("one", "other"))
_EAST_SLAVIC = Plurals(
    "(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2)", ("one", "few", "many")
)
_SOUTH_SLAVIC = Plurals(
    "(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2)", ("one", "few", "other")
)
_RULES = {
    **dict.fromkeys("bm bo dz hnj id ig ii ja jbo jv kde km ko lkt lo ms my nqo sah ses sg su th to tpi vi wo yo yue zh"
                    .split(), _ONE),
    **dict.fromkeys("ak am as bho bn doi fa ff fr gu guw hi hy kab kn ln mg nso pa si ti wa zu".split(), _ABOVE_ONE),
    **dict.fromkeys("be ru uk".split(), _EAST_SLAVIC),
    **dict.fromkeys("bs hr sh sr".split(), _SOUTH_SLAVIC),
    **dict.fromkeys("cs sk".split(), Plurals("(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2)", ("one", "few", "other"))),
    "pl": Plurals(
        "(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2)", ("one", "few", "many")
    ),
    "lt": Plurals(
        "(n%10==1 && (n%100<11 || n%100>19) ? 0 : n%10>=2 && n%10<=9 && (n%100<11 || n%100>19) ? 1 : 2)",
        ("one", "few", "other"),
    ),
    "lv": Plurals("(n%10==0 || (n%100>=11 && n%100<=19) ? 0 : n%10==1 && n%100!=11 ? 1 : 2)", ("zero", "one", "other")),
    "ro": Plurals("(n==1 ? 0 : n==0 || (n%100>=1 && n%100<=19) ? 1 : 2)", ("one", "few", "other")),
    "sl": Plurals("(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3)", ("one", "two", "few", "other")),
    "ar": Plurals(
        "(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5)",
        ("zero", "one", "two", "few", "many", "other"),
    ),
    "cy": Plurals(
        "(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n==3 ? 3 : n==6 ? 4 : 5)", ("zero", "one", "two", "few", "many", "other")
    ),
    "ga": Plurals("(n==1 ? 0 : n==2 ? 1 : n>=3 && n<=6 ? 2 : n>=7 && n<=10 ? 3 : 4)",
                  ("one", "two", "few", "many", "other")),
    "gd": Plurals("(n==1 || n==11 ? 0 : n==2 || n==12 ? 1 : (n>=3 && n<=10) || (n>=13 && n<=19) ? 2 : 3)",
                  ("one", "two", "few", "other")),
    "he": Plurals("(n==1 ? 0 : n==2 ? 1 : 2)", ("one", "two", "other")),
    "is": Plurals("(n%10==1 && n%100!=11 ? 0 : 1)", ("one", "other")),
    "mk": Plurals("(n%10==1 && n%100!=11 ? 0 : 1)", ("one", "other")),
    "mt": Plurals(
        "(n==1 ? 0 : n==2 ? 1 : n==0 || (n%100>=3 && n%100<=10) ? 2 : n%100>=11 && n%100<=19 ? 3 : 4)",
        ("one", "two", "few", "many", "other"),
    ),
    "br": Plurals(
        "(n%10==1 && n%100!=11 && n%100!=71 && n%100!=91 ? 0 : n%10==2 && n%100!=12 && n%100!=72 && n%100!=92 ? 1 : "
        "(n%10==3 || n%10==4 || n%10==9) && (n%100<10 || n%100>19) && (n%100<70 || n%100>79) && (n%100<90 || n%100>99)"
        " ? 2 : n!=0 && n%1000000==0 ? 3 : 4)",
        ("one", "two", "few", "many", "other"),
    ),
}  # fmt: skip


def plurals_of(language: str) -> Plurals:
    """The rule of a language; `one` and `other` for those that the table does not name."""
    if language.replace("_", "-").lower() == "pt-br":
        return _ABOVE_ONE
    return _RULES.get(standard_tag(language).split("-")[0], _TWO)
