// River on PostgreSQL under measurement. Executes commands, lines of JSON on its standard input, and
// replies with a line each on its standard output, as bench/node/main.mjs does.
//
//	river produce
//	river consume URL BOARD PLACE CLOCK SECONDS PLACES     (CLOCK: none, monotonic or wall)
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sys/unix"
)

const (
	warm      = -1
	chunk     = 1_000
	few       = 100
	lookEvery = 4 * time.Millisecond
)

var (
	background = context.Background()
	lines      = bufio.NewReaderSize(os.Stdin, 1<<20)
	silent     = slog.New(slog.NewTextHandler(io.Discard, nil))
)

type Client = river.Client[pgx.Tx]

type Noop struct {
	Number int `json:"number"`
}

func (Noop) Kind() string { return "noop" }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readLine() json.RawMessage {
	line, err := lines.ReadBytes('\n')
	check(err)
	return line
}

func say(value any) {
	line, err := json.Marshal(value)
	check(err)
	_, err = os.Stdout.Write(append(line, '\n'))
	check(err)
}

// Clocks that are comparable between processes, in ms.
func monotonic() float64 {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return float64(now.Nano()) / 1e6
}

func wall() float64 { return float64(time.Now().UnixNano()) / 1e6 }

func pool(url string) *pgxpool.Pool {
	made, err := pgxpool.New(background, url)
	check(err)
	return made
}

// ----------------------------------------------------------------------------------- enqueueing

func many(client *Client, count int, call int, due time.Time) {
	for at := 0; at < count; at += call {
		params := make([]river.InsertManyParams, 0, call)
		for number := at; number < min(at+call, count); number++ {
			var opts *river.InsertOpts
			if !due.IsZero() {
				opts = &river.InsertOpts{ScheduledAt: due}
			}
			params = append(params, river.InsertManyParams{Args: Noop{number}, InsertOpts: opts})
		}
		// Uses COPY.
		_, err := client.InsertManyFast(background, params)
		check(err)
	}
}

func one(client *Client, number int) {
	_, err := client.Insert(background, Noop{number}, nil)
	check(err)
}

func obey(client *Client, verb string, count int, extra float64) any {
	begin := time.Now()
	switch verb {
	case "one":
		for range few {
			one(client, warm)
		}
		begin = time.Now()
		for number := range count {
			one(client, number)
		}
	case "many":
		many(client, count, chunk, time.Time{})
	case "whole":
		many(client, count, count, time.Time{})
	case "later":
		many(client, count, chunk, time.UnixMilli(int64(extra)))
		return nil
	case "warm":
		one(client, warm)
		return nil
	case "pace":
		sent := make([]float64, 0, count)
		for number := range count {
			time.Sleep(time.Until(begin.Add(time.Duration(float64(number) * extra))))
			one(client, number)
			sent = append(sent, monotonic())
		}
		return sent
	}
	return float64(count) / time.Since(begin).Seconds()
}

func produce() {
	for {
		var url *string
		check(json.Unmarshal(readLine(), &url))
		if url == nil {
			return
		}
		connections := pool(*url)
		migrator, err := rivermigrate.New(riverpgxv5.New(connections), nil)
		check(err)
		_, err = migrator.Migrate(background, rivermigrate.DirectionUp, nil)
		check(err)
		client, err := river.NewClient(riverpgxv5.New(connections), &river.Config{Logger: silent})
		check(err)
		say("open")
		for {
			var command []any
			check(json.Unmarshal(readLine(), &command))
			if command == nil {
				break
			}
			words := append(command, 0.0, 0.0)
			count, _ := words[1].(float64)
			extra, _ := words[2].(float64)
			say(obey(client, command[0].(string), int(count), extra))
		}
		connections.Close()
		say("closed")
	}
}

// -------------------------------------------------------------------------------------- working

type tally struct {
	mutex       sync.Mutex
	now         func() float64
	timed       bool
	first, last float64
	seen        []any
}

func (t *tally) count() uint64 {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return uint64(len(t.seen))
}

type worker struct {
	river.WorkerDefaults[Noop]
	tally *tally
	wait  time.Duration
}

func (w *worker) Work(_ context.Context, job *river.Job[Noop]) error {
	time.Sleep(w.wait)
	t := w.tally
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.last = t.now()
	if t.first == 0 {
		t.first = t.last
	}
	if t.timed {
		t.seen = append(t.seen, [2]float64{float64(job.Args.Number), t.last})
	} else {
		t.seen = append(t.seen, job.Args.Number)
	}
	return nil
}

// Writes this process's progress to the board.
func show(seen *tally, board *os.File, place int64) {
	var cell [8]byte
	for range time.Tick(lookEvery) {
		binary.LittleEndian.PutUint64(cell[:], seen.count())
		_, err := board.WriteAt(cell[:], place*8)
		check(err)
	}
}

func consume(words []string) {
	place, err := strconv.ParseInt(words[2], 10, 64)
	check(err)
	seconds, err := strconv.ParseFloat(words[4], 64)
	check(err)
	places, err := strconv.Atoi(words[5])
	check(err)
	seen := &tally{now: monotonic, timed: words[3] != "none", seen: []any{}}
	if words[3] == "wall" {
		seen.now = wall
	}
	board, err := os.OpenFile(words[1], os.O_RDWR, 0)
	check(err)
	go show(seen, board, place)
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{tally: seen, wait: time.Duration(seconds * 1e9)})
	client, err := river.NewClient(riverpgxv5.New(pool(words[0])), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: places}},
		Workers:           workers,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            silent,
	})
	check(err)
	say("ready")
	readLine()
	check(client.Start(background))
	readLine()
	seen.mutex.Lock()
	say([]any{seen.first, seen.last, seen.seen})
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "produce" {
		produce()
	} else {
		consume(os.Args[2:])
	}
}
