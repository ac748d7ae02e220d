"""Where everything stands in the arrays of the routing interpreter, `wire.kernels.routing`; loads no kernel.

`code` is the program: a head, a row for each route, then what the rows point to. `pool` is bytes: the
program's constants, then texts that were judged, then room to write texts in. `work` is what is known of the
record at hand. `state` is where the loop stands, why it stopped, and what it has counted.

A text is two numbers, place and size: a place of 0 or more is in the records, a negative one is ~place in the
pool; a size of -1 is null.
"""

from __future__ import annotations

# The head of the program.
C_ROUTES = 0
"""How many routes there are."""
C_ROUTES_AT = 1
C_SLOTS = 2
"""How many paths the program reads."""
C_MEMORY = 3
"""Where in the pool the judged texts stand."""
C_SCRATCH = 4
"""Where in the pool the room begins."""
C_ADMISSION = 5
"""Where the condition begins that an event must meet before any route; -1 for none."""
C_SHAPE = 6
"""Where in the pool the names of the headers stand that the record before had."""
C_HEADS = 7
"""Where in the pool the heads of its extensions stand."""
C_RESPELLED = 8
"""Whether headers are read in other spellings than the binding's: those that may be ours are not certain."""
C_NOW = 9
"""The moment of the batch in microseconds; 0 if it is not given, then what asks for it is not certain."""
C_VALUES = 10
"""How properties of Pulsar's profile 0.1 say values, where such events are read; else 0."""
C_VERSION = 11
"""Where in the pool the specversion of an event of 0.1 stands."""
C_NAMES = 12
"""Where in the pool the names of its extensions stand, in lower case."""
C_HEAD = 13

# A route.
R_GUARD = 0
"""Where the condition begins that does not read data; -1 for none."""
R_BODY = 1
R_READS_DATA = 2
R_MODE = 3
R_TOMBSTONES = 4
R_NO_DATA_AS_EVENT = 5
R_KEY = 6
R_KEY_VALUE = 7
"""Where the value is that makes the key."""
R_NAME = 8
R_NAME_SIZE = 9
"""The route's name as the netstring with which derived ids begin."""
R_CHANGES = 10
R_CHANGE_COUNT = 11
"""Changes of attributes: those of core, then extensions in the order of their names."""
R_CAUSE = 12
"""Which of them is causationid."""
R_TARGETS = 13
R_TARGET_COUNT = 14
R_COMPUTED = 15
R_COMPUTED_COUNT = 16
"""Where the places of the instructions stand that compute values of the route, and how many there are."""
R_LEFT = 17
"""Whether the kernel has only a part of the conditions: a record that they do not rule out is not certain."""
R_ROUTE = 18

MODE_KEEP = 0
MODE_BINARY = 1
MODE_STRUCTURED = 2
TOMBSTONES_PASS = 0
TOMBSTONES_DROP = 1
TOMBSTONES_REJECT = 2
KEY_KEEP = 0
KEY_NONE = 1
KEY_PARTITIONKEY = 2
KEY_VALUE = 3

# A target of a route: its number, the largest batch that its topic takes (-1 if it is not known), the
# smallest size of a key that it takes (0 for a compacted topic, else -1, which is the size of no key), and
# how properties say values if events are written in Pulsar's profile 0.1, else 0.
ORDINAL_BITS = 16
"""Of the id of a record that leaves: so many outputs one input may have for one target, 2^16."""
T_NUMBER = 0
T_LIMIT = 1
T_KEYED = 2
T_VALUES = 3
T_TARGET = 4

VALUES_AUTO = 1
VALUES_JSON = 2
VALUES_RAW = 3

# A change: the attribute, its number in core or -1, its head, the value, whether a null leaves the attribute
# as it is, and whether the value is an attribute under its new name, which keeps its style.
G_NAME = 0
G_NAME_SIZE = 1
G_CORE = 2
G_HEAD = 3
G_VALUE = 4
G_NULL_KEEPS = 5
G_RENAMED = 6
G_CHANGE = 7

# A value: how many parts, then the parts: a kind and two numbers.
P_PART = 3
P_NULL = 0
P_CONSTANT = 1
P_CORE = 2
"""An attribute of core, by number."""
P_EXTENSION = 3
"""An extension, by its name in the pool."""
P_STRING = 4
"""The string at a path, by slot."""
P_SCALAR = 5
"""The string, number or boolean at a path, as text."""
P_COMPUTED = 6
"""A value that was computed before, by its number on the route."""

CAUSE = -2
"""Instead of a value: the id of the event as it came, where the event is transformed."""

CORE_NAMES = b"specversion id source type subject time datacontenttype dataschema"
"""How every pool begins: the attributes of core, in the order in which they are written."""
A_SPECVERSION = 0
A_ID = 1
A_SOURCE = 2
A_TYPE = 3
A_SUBJECT = 4
A_TIME = 5
A_DATACONTENTTYPE = 6
A_DATASCHEMA = 7
A_CORE = 8

MAX_HEAD = 60
"""Bytes of a name that has a head: the length of the header takes one byte."""


def head_of(name: bytes) -> bytes:
    r"""Give a name as it stands before its text, in binary mode and then in structured mode.

    >>> head_of(b"type")
    b'\x0ece_type,"type":"'
    """
    return bytes([2 * (3 + len(name))]) + b"ce_" + name + b',"' + name + b'":"'


CORE_HEADS = b"".join(map(head_of, CORE_NAMES.split()))
"""What stands in every pool behind the names."""

# What is known of an attribute: name, text, how many bytes of the text JSON escapes, its style, and its head.
N_NAME = 0
N_NAME_SIZE = 1
N_TEXT = 2
N_SIZE = 3
N_ESCAPES = 4
N_STYLE = 5
N_HEAD = 6
"""Where in the pool its name stands as it is written, see `head_of`; 0 if it does not."""
N_PLACE = 7
"""Of a change: where the extension stands, or ~ of where it would stand; 0 if it stays as it is."""
N_ATTRIBUTE = 8
STYLE_TEXT = 0
STYLE_RAW = 1
"""A number or boolean: JSON writes it without quotes."""
STYLE_MEDIA_TYPE = 2
"""The header of datacontenttype has a name of its own."""

MAX_EXTENSIONS = 48
MAX_FOREIGN = 48
MAX_CHANGES = 48
MAX_OUTPUTS = 64
MAX_STACK = 128
MAX_SHAPE = 32
"""Headers of a record whose names are remembered, at most, and the bytes of those names."""
SHAPE_TEXT = 1024
HEADS_TEXT = 2 * SHAPE_TEXT + MAX_SHAPE
"""Bytes of their heads: each is twice the name with its length, and one more."""
NAMES_TEXT = 2048
"""Bytes of the names of extensions of profile 0.1, at most."""

# The record at hand; its first fields are those of `records.FIELDS`.
W_STRUCTURED = 8
W_DATA = 9
W_DATA_SIZE = 10
W_DATA_IS_JSON = 11
"""Whether the event came with a JSON value rather than bytes."""
W_MEDIA = 12
"""What is known of the media type, see J_LEGAL and those behind it."""
W_SCANNED = 13
"""Whether the data was seen to be JSON."""
W_EXTENSIONS = 14
W_FOREIGN = 15
W_SCRATCH = 16
"""Where in the pool the next text may be written."""
W_OUTPUTS = 17
"""How many records were written for this one."""
W_WRITTEN = 18
"""How many attributes may leave: rows, those that are null included."""
W_TRANSFORMED = 19
W_KEY_TEXT = 20
W_KEY_TEXT_SIZE = 21
W_HEADERS_SIZE = 22
W_HEADER_COUNT = 23
W_VALUE_BYTES = 24
"""The size of the value that leaves, -1 for null."""
W_NUMBER = 25
W_SCALE = 26
W_LEFT = 27
W_LEFT_SIZE = 28
W_RIGHT = 29
W_RIGHT_SIZE = 30
W_DEPTH = 31
W_DATA_STYLE = 32
W_DROPPED = 33
"""How many routes drop the record."""
W_SHAPE = 34
"""How many headers the record before had, if their names are remembered, else 0."""
W_OTHERS = 35
"""How many records in a row had other headers."""
W_VALUES = 36
"""How many values are on the stack of values."""
W_FORM = 37
"""For which T_VALUES the record is measured."""
W_NAMES = 38
"""Where in the pool the next name of an extension of 0.1 may be written."""
W_HEAD = 39
W_CORE_AT = W_HEAD
W_EXTENSIONS_AT = W_CORE_AT + A_CORE * N_ATTRIBUTE
W_FOREIGN_AT = W_EXTENSIONS_AT + MAX_EXTENSIONS * N_ATTRIBUTE
W_CHANGES_AT = W_FOREIGN_AT + 2 * MAX_FOREIGN
W_WRITTEN_AT = W_CHANGES_AT + (A_CORE + MAX_CHANGES) * N_ATTRIBUTE
W_UNDO_AT = W_WRITTEN_AT + A_CORE + MAX_EXTENSIONS + MAX_CHANGES
W_STACK_AT = W_UNDO_AT + 3 * MAX_OUTPUTS
W_SHA_AT = W_STACK_AT + MAX_STACK
W_SHAPE_AT = W_SHA_AT + 72

# A header of the record before: the size of its name, length included, the attribute of core it is or -1, and
# where the attribute stands in `work`, or -1 for a header of the application.
H_NAME_SIZE = 0
H_CORE = 1
H_PLACE = 2
H_HEADER = 3

# The stack of values: texts, numbers and moments, each two numbers of which the second is -1 for null. A
# text is place and size, a number is digits and scale, see MAX_NUMBER; a moment is microseconds and 0.
MAX_VALUES = 64
V_VALUE = 2
W_VALUES_AT = W_SHAPE_AT + MAX_SHAPE * H_HEADER
W_COMPUTED_AT = W_VALUES_AT + (MAX_VALUES + 2) * V_VALUE
"""Behind room for two more: a function of one argument may look at where others have three."""
MAX_COMPUTED = 64
WORK_SIZE = W_COMPUTED_AT + MAX_COMPUTED * V_VALUE
MAX_SCALE = 18
MAX_NUMBER: int = 10**MAX_SCALE
"""The digits of a number are less than this, whatever their sign: such a number is a decimal of the plan."""

# How data stands in a structured event; negative for binary mode.
DATA_IS_VALUE = -1
DATA_IS_JSON_VALUE = -2
"""The value is JSON, and no attribute says so: a header has to."""
DATA_NONE = 0
DATA_JSON = 1
DATA_TEXT = 2
DATA_BASE64 = 3

# What was judged of a text.
J_LEGAL = 1
J_JSON = 2
J_TEXT = 4
"""Characters in UTF-8."""
J_STRUCTURED = 8
"""The JSON format of structured mode."""
J_OTHER = 16
"""Something that only the stage can read."""
J_CHARSET = 32
"""Characters in something else."""

# The kinds of text that are judged.
K_SOURCE = 0
K_MEDIA_TYPE = 1
K_SCHEMA = 2
MEMORY_OF_KIND = 256
MEMORY_ROWS = 3 * MEMORY_OF_KIND
MEMORY_TEXT = 128
"""Bytes of a text that is remembered, at most."""
M_KIND = 0
M_SIZE = 1
M_VERDICT = 2
M_ROW = 3

# Where the loop stands.
X_POS = 0
X_LEFT = 1
"""How many records of the batch are left."""
X_FIRST = 2
X_END = 3
X_DRY = 4
"""Whether nothing is written and uncertain records are only noted."""
X_NOTED = 5
"""How many uncertain records were noted."""
X_ASKED = 6
"""The kind of text that has to be judged, then the text."""
X_ASKED_AT = 7
X_ASKED_SIZE = 8
X_IN = 9
X_OUT = 10
X_UNMATCHED = 11
X_DROPPED = 12
X_NEXT = 13
"""Where the record behind the one at hand begins."""
X_FORCED = 14
"""A record that is not to be tried; -1 for none."""
X_RECENT = 15
"""For each kind of text, where the memory has the one that was met last."""
X_BASE = 18
"""The offset that those of the records of the batch count from."""
STATE_SIZE = 19

# Why the loop stopped, or what became of a record.
DONE = 0
SLOW = 1
"""The record at the position is not certain."""
FULL = 2
"""There is no room for a record that it becomes."""
ASK = 3
"""A text of it has to be judged."""
BROKEN = 4
"""The bytes are no record."""
PASSED = 5
"""A route does not take the event."""

# Opcodes: an instruction is the code and four numbers.
I_INSTRUCTION = 5
I_END = 0
I_PUSH = 1
I_AND = 2
I_OR = 3
I_NOT = 4
I_JUMP_FALSE = 5
I_JUMP_TRUE = 6
I_LOAD_LEFT = 7
"""A part, as text."""
I_LOAD_RIGHT = 8
I_COMPARE_TEXT = 9
I_LIKE = 10
I_TEXT_IS_NULL = 11
I_NUMBER_OF_PATH = 12
I_NUMBER_OF_TEXT = 13
I_COMPARE_NUMBER = 14
"""The number against a constant: digits and scale."""
I_NUMBER_IS_NULL = 15
I_PATH_IS_NULL = 16
I_BOOLEAN_OF_PATH = 17
I_BOOLEAN_OF_TEXT = 18
I_COMPARE_BOOLEAN = 19
I_BOOLEAN_IS_NULL = 20
I_COMPARE_CORE = 21
"""An attribute of core, by number, against a constant: the comparison, then the constant."""
I_COALESCE = 22
"""The left boolean, or the right one if that is null."""

# Instructions on the stack of values. A call takes its arguments from there and puts its result there, a test
# puts it on the stack of booleans; with a null argument either gives null.
I_VALUE = 32
"""A part, as text; every opcode from here on is about values."""
I_CONSTANT = 33
"""A value as its two numbers."""
I_NOW = 34
I_VALUE_OF_PATH = 35
"""The number at a path."""
I_VALUE_OF_BOOLEAN = 36
"""The text of the last boolean: the places of true and false in the pool."""
I_CALL = 37
"""A function of those below, and how many arguments it has."""
I_TEST = 38
"""A test of those below, how many arguments it has, and two numbers of its own."""
I_VALUE_IS_NULL = 39
I_COPY_VALUE = 40
I_DROP_VALUE = 41
I_JUMP = 42
"""Jumps of values: always, if the last boolean is not true, and if the last value is not null; what
decided is taken off, but for a value that is not null."""
I_JUMP_NOT_TRUE = 43
I_JUMP_NOT_NULL = 44

# Tests. The comparisons have the accepted signs, LIKE its pattern.
Q_COMPARE_TEXT = 0
Q_COMPARE_NUMBER = 1
Q_COMPARE_TIME = 2
Q_LIKE = 3
Q_STARTS_WITH = 4
Q_ENDS_WITH = 5
Q_CONTAINS = 6
Q_BOOLEAN_OF_TEXT = 7
Q_CESQL_BOOLEAN = 8

# Functions of texts.
F_LOWER = 0
F_UPPER = 1
F_UNICODE_LOWER = 2
F_UNICODE_UPPER = 3
F_LENGTH = 4
F_LEFT = 5
F_RIGHT = 6
F_SUBSTRING = 7
F_CONCAT = 8
F_TRIM = 9
F_LTRIM = 10
F_RTRIM = 11
F_REPLACE = 12
F_POSITION = 13

# Functions of numbers.
F_NUMBERS = 32
F_NUMBER_OF_TEXT = 32
F_CESQL_INTEGER = 33
F_TEXT_OF_NUMBER = 34
F_ADD = 35
F_SUBTRACT = 36
F_MULTIPLY = 37
F_DIVIDE = 38
F_REMAINDER = 39
F_QUOTIENT = 40
F_ABS = 41
F_FLOOR = 42
F_CEIL = 43
F_TRUNCATE = 44
F_ROUND = 45
F_WITHIN = 46

# Functions of moments.
F_TIMES = 64
F_TIME_OF_TEXT = 64
F_TEXT_OF_TIME = 65
F_SHIFT = 66
F_UNIX_SECONDS = 67
F_UNIX_MILLIS = 68
F_UNIX_MICROS = 69
F_YEAR = 70
F_MONTH = 71
F_DAY = 72
F_HOUR = 73
F_MINUTE = 74
F_SECOND = 75

# The six comparisons, as sets of the signs that they accept: 1 less, 2 equal, 4 greater.
LESS = 1
EQUAL = 2
GREATER = 4

# Three values, so that AND is the smaller, OR the larger, NOT the mirror.
FALSE = 0
NULL = 1
TRUE = 2
UNSURE = -1

ANY = 0xFE
ONE = 0xFF
"""The wildcards of a pattern: bytes that UTF-8 does not have."""
