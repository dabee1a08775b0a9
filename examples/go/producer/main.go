// Handles incoming messages: each becomes an order and an event, in one transaction.
//
//	producer URL-OF-POSTGRESQL < messages
//
// Reads messages from standard input, one to a line: id, customer, amount. A real
// program would get them from its broker and acknowledge each when handle has
// returned. Prints for each message whether it was processed, a duplicate, or refused.
package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/lib/pq"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: producer URL-OF-POSTGRESQL < messages")
	}
	db, err := sql.Open("postgres", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		message := strings.Fields(lines.Text())
		result, clashed := "", false
		for result == "" {
			if result, err = handle(db, message[0], message[1], message[2]); err != nil {
				result = afterError(err, &clashed)
			}
		}
		fmt.Println(message[0], result)
	}
}

func handle(db *sql.DB, id, customer, amount string) (string, error) {
	tx, err := db.Begin()
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after the commit

	// The endpoint is an argument and not a SET: a pooler may give the session to others.
	var isNew bool
	if err = tx.QueryRow("SELECT outbox_begin($1, endpoint => 'orders')", id).Scan(&isNew); err != nil {
		return "", err
	}
	if !isNew {
		return "duplicate", tx.Commit()
	}
	if _, err = tx.Exec("INSERT INTO orders (customer, amount) VALUES ($1, $2::integer)", customer, amount); err != nil {
		return "", err
	}
	if _, err = tx.Exec(`SELECT outbox_enqueue('order-events',
		jsonb_build_object('customer', $1::text, 'amount', $2::integer), $3::jsonb)`, customer, amount, `{"type": "OrderPlaced"}`); err != nil {
		return "", err
	}
	if _, err = tx.Exec("SELECT outbox_commit()"); err != nil {
		return "", err
	}
	return "processed", tx.Commit()
}

// afterError returns "refused" for a message that no retry will help, "" to try again.
func afterError(err error, clashed *bool) string {
	if errors.Is(err, pq.ErrSSLNotSupported) {
		log.Fatal(err, "; add ?sslmode=disable to the URL")
	}
	var failure *pq.Error
	if !errors.As(err, &failure) || failure.Code.Class() == "08" || strings.HasPrefix(string(failure.Code), "57P") {
		log.Print("trying again: ", err)
		time.Sleep(100 * time.Millisecond) // the connection was lost: with the same id it is safe to begin again
		return ""
	}
	switch {
	case failure.Code == "40001" || failure.Code == "40P01":
		return "" // another transaction was faster; nothing has happened
	case failure.Code == "23505" && !*clashed:
		*clashed = true
		return "" // perhaps a copy was processed meanwhile: then the next try is a duplicate
	case failure.Code.Class() == "22" || failure.Code.Class() == "23":
		return "refused" // poison: to be put where somebody will look at it
	}
	log.Fatal(err)
	return ""
}
