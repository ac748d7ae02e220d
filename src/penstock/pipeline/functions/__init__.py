"""Functions of users on events: called in batches, in a process of their own, with retries (spec 004).

| module | knows |
|---|---|
| location | where a function is defined, without running anything |
| frames | plain values as frames of bounded length |
| parcels | events and outcomes as plain values |
| emission | which id an emitted event has, and its key |
| progress, logs | which event a function is at, and what it logs about it |
| program, child | the side of the function: a process that calls it |
| process | the side of the worker: that process, its time-out and its memory |
| isolation | which record of a batch it is that breaks it |
| delivery | retries with back-off, in order |
| receipts | completion events |
| invoker | all of it, as the stage needs it |

The modules of the child import neither Arrow nor Spark.
"""
