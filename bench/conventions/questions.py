"""Questions about Python functions: those of the exam with hidden assertions, those of teaching without.

A line is a function's name, what it does, and assertions. ``at(name)`` is a path as the function takes it, ``write`` makes
a file, and ``names`` are the sorted file names of paths. No assertion touches a case that the question leaves open.
"""

# ruff: noqa: E501 – a question is a line

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["pure", "lookup", "files", "reports"]


class Question(NamedTuple):
    key: str
    text: str
    function: str = ""
    assertions: tuple[str, ...] = ()
    """Expressions that are true if the function is right."""


_PURE = """
second_largest|returns the second largest number of a list of different numbers|second_largest([3, 9, 4]) == 4; second_largest([-1, -5, -3, -2]) == -2
is_palindrome|tells whether a word reads the same backwards|is_palindrome("level"); not is_palindrome("house")
count_vowels|counts the vowels of a lower-case text|count_vowels("banana") == 3; count_vowels("xyz") == 0
factorial|returns the factorial of a number that is not negative|factorial(5) == 120; factorial(0) == 1
is_prime|tells whether a positive integer is prime|is_prime(13); not is_prime(15); not is_prime(1)
flatten|turns a list of lists into one list|flatten([[1, 2], [], [3]]) == [1, 2, 3]
word_counts|returns a dictionary with how often each word occurs in a text|word_counts("a b a") == {"a": 2, "b": 1}
reverse_words|reverses the order of the words of a sentence|reverse_words("one two three") == "three two one"
gcd|returns the greatest common divisor of two positive integers|gcd(12, 18) == 6; gcd(7, 5) == 1
fibonacci|returns a list of the first n Fibonacci numbers, which start with 0 and 1|list(fibonacci(6)) == [0, 1, 1, 2, 3, 5]
celsius_to_fahrenheit|converts degrees Celsius to degrees Fahrenheit|abs(celsius_to_fahrenheit(100) - 212) < 1e-6; abs(celsius_to_fahrenheit(0) - 32) < 1e-6
remove_duplicates|removes duplicates from a list and keeps the order|remove_duplicates([3, 1, 3, 2, 1]) == [3, 1, 2]
average|returns the average of a list of numbers|abs(average([1, 2, 6]) - 3) < 1e-9
sum_of_digits|returns the sum of the digits of a positive integer|sum_of_digits(1234) == 10
is_leap_year|tells whether a year is a leap year|is_leap_year(2000); is_leap_year(2024); not is_leap_year(1900)
merge_sorted|merges two sorted lists into one sorted list|merge_sorted([1, 4], [2, 3, 9]) == [1, 2, 3, 4, 9]
transpose|transposes a matrix that is a list of rows|[list(row) for row in transpose([[1, 2, 3], [4, 5, 6]])] == [[1, 4], [2, 5], [3, 6]]
clamp|takes a number, a minimum and a maximum and limits the number to that range|clamp(5, 1, 3) == 3; clamp(0, 1, 3) == 1; clamp(2, 1, 3) == 2
is_anagram|tells whether two words are anagrams of each other|is_anagram("listen", "silent"); not is_anagram("abc", "abd")
to_binary|returns a positive integer as a string of binary digits without a prefix|to_binary(10) == "1010"
running_total|returns the list of running totals of a list of numbers|list(running_total([1, 2, 3])) == [1, 3, 6]
invert_dictionary|swaps the keys and the values of a dictionary|invert_dictionary({"a": 1, "b": 2}) == {1: "a", 2: "b"}
chunks|takes a list and a size and splits the list into lists of that size|[list(chunk) for chunk in chunks([1, 2, 3, 4, 5], 2)] == [[1, 2], [3, 4], [5]]
longest_word|returns the longest word of a sentence|longest_word("a horse ran") == "horse"
"""
_LOOKUP = """
find_index|takes a list and a value and returns the position of the value in the list|find_index([5, 6, 7], 6) == 1
find_user_age|takes a dictionary of ages by user name and a name and returns the age of that user|find_user_age({"ann": 31, "bob": 40}, "bob") == 40
first_even|returns the first even number of a list|first_even([3, 5, 8, 10]) == 8
find_longer_than|takes a list of words and a length and returns the first word that is longer than this|find_longer_than(["a", "bee", "horse"], 3) == "horse"
parse_age|reads a text such as "42" and returns the age as an integer|parse_age("42") == 42
get_price|takes a dictionary of prices and a product and returns the product's price|get_price({"tea": 3, "milk": 2}, "tea") == 3
find_by_id|takes a list of dictionaries with the key "id" and an id and returns the dictionary with that id|find_by_id([{"id": 1}, {"id": 2, "x": 3}], 2) == {"id": 2, "x": 3}
first_repeated|returns the first character of a text that occurs a second time|first_repeated("abcb") == "b"
divide|takes two numbers and divides the first by the second|divide(6, 3) == 2
extract_domain|returns the domain of an e-mail address|extract_domain("ann@example.org") == "example.org"
find_extension|returns the extension of a file name without the dot|find_extension("report.pdf") == "pdf"
month_number|takes the English name of a month and returns its number|month_number("January") == 1; month_number("December") == 12
binary_search|takes a sorted list and a value and returns the position of the value by binary search|binary_search([1, 3, 5, 7], 5) == 2; binary_search([1, 3], 1) == 0
roman_digit|returns the value of one Roman numeral such as "V"|roman_digit("V") == 5; roman_digit("X") == 10
max_key|returns the key of a dictionary that has the largest value|max_key({"a": 1, "b": 5, "c": 2}) == "b"
square_root|returns the square root of a number|abs(square_root(9) - 3) < 1e-9
nth_item|takes a list and a number n and returns the item at index n|nth_item(["a", "b", "c"], 1) == "b"
find_substring|takes a text and a word and returns the index at which the word starts in the text|find_substring("hello world", "world") == 6
closest|takes a list of numbers and a target and returns the number of the list that is closest to the target|closest([1, 5, 10], 6) == 5
parse_pair|reads a text such as "key=value" and returns a tuple of the key and the value|tuple(parse_pair("a=b")) == ("a", "b")
first_word|returns the first word of a text|first_word("good day") == "good"
capital_of|takes a dictionary of capitals by country and a country and returns its capital|capital_of({"Peru": "Lima"}, "Peru") == "Lima"
minimum|returns the smallest number of a list|minimum([4, 2, 8]) == 2
hex_to_int|reads a hexadecimal text such as "ff" and returns the integer|hex_to_int("ff") == 255
"""
_FILES = """
count_lines|takes the path of a text file and returns the number of its lines|write("a.txt", "x\\ny\\nz\\n") or count_lines(at("a.txt")) == 3
read_text|takes the path of a text file and returns its text|write("a.txt", "good day") or read_text(at("a.txt")) == "good day"
file_size|takes the path of a file and returns its size in bytes|write("a.txt", "12345") or file_size(at("a.txt")) == 5
list_text_files|takes the path of a folder and returns a list of the files in it that end in .txt|write("a.txt", "") or write("b.md", "") or names(list_text_files(at("."))) == ["a.txt"]
write_lines|takes the path of a file and a list of lines and writes each line into the file|write_lines(at("o.txt"), ["a", "b"]) is None or True; read("o.txt").split() == ["a", "b"]
append_line|takes the path of a text file and a line and appends the line to the file|write("a.txt", "x\\n") or append_line(at("a.txt"), "y") is None or True; read("a.txt").split() == ["x", "y"]
first_line|takes the path of a text file and returns its first line without the line break|write("a.txt", "one\\ntwo\\n") or first_line(at("a.txt")) == "one"
longest_line|takes the path of a text file and returns the length of its longest line without the line break|write("a.txt", "ab\\nabcd\\n") or longest_line(at("a.txt")) == 4
count_words|takes the path of a text file and returns the number of its words|write("a.txt", "a b\\nc") or count_words(at("a.txt")) == 3
copy_file|takes the path of a file and a target path and copies the file to the target|write("a.txt", "x") or copy_file(at("a.txt"), at("b.txt")) is None or True; read("b.txt") == "x"
file_exists|takes a path and tells whether a file exists there|write("a.txt", "") or file_exists(at("a.txt")); not file_exists(at("b.txt"))
make_folder|takes a path and creates a folder there|make_folder(at("new")) is None or True; isdir("new")
delete_file|takes the path of a file and deletes the file|write("a.txt", "") or delete_file(at("a.txt")) is None or True; not exists("a.txt")
rename_file|takes the path of a file and a new path and renames the file|write("a.txt", "x") or rename_file(at("a.txt"), at("b.txt")) is None or True; read("b.txt") == "x" and not exists("a.txt")
load_json|takes the path of a JSON file and returns its content|write("a.json", '{"a": [1]}') or load_json(at("a.json")) == {"a": [1]}
save_json|takes the path of a file and a dictionary and saves the dictionary there as JSON|save_json(at("o.json"), {"a": 1}) is None or True; read("o.json").replace(" ", "").replace("\\n", "") == '{"a":1}'
join_path|takes a folder and a file name and returns the path of the file in the folder|str(join_path(at("a"), "b.txt")) == "a/b.txt"
replace_word|takes the path of a text file, a word and another word and replaces the first word by the second in the file|write("a.txt", "red car") or replace_word(at("a.txt"), "red", "blue") is None or True; read("a.txt") == "blue car"
non_empty_lines|takes the path of a text file and returns a list of its lines that are not empty, without line breaks|write("a.txt", "x\\n\\ny\\n") or non_empty_lines(at("a.txt")) == ["x", "y"]
merge_files|takes the paths of two text files and a target path and writes the text of both into the target|write("a.txt", "x") or write("b.txt", "y") or merge_files(at("a.txt"), at("b.txt"), at("c.txt")) is None or True; read("c.txt").split() in (["xy"], ["x", "y"])
count_files|takes the path of a folder and returns how many files it contains|write("a.txt", "") or write("b.txt", "") or count_files(at(".")) == 2
file_stem|takes the path of a file and returns its name without the folder and the extension|file_stem(at("a/report.pdf")) == "report"
lines_with|takes the path of a text file and a word and returns a list of the lines that contain the word, without line breaks|write("a.txt", "a dog\\na cat\\n") or lines_with(at("a.txt"), "cat") == ["a cat"]
read_numbers|takes the path of a text file with one integer a line and returns a list of the integers|write("a.txt", "4\\n5\\n") or read_numbers(at("a.txt")) == [4, 5]
"""
_REPORTS = """
total_price|takes a dictionary of prices, outputs each price and returns their sum|total_price({"tea": 3, "milk": 2}) == 5
countdown|takes a number, outputs each number from it down to 1 and returns how many there were|countdown(3) == 3
check_stock|takes a dictionary of stock counts, outputs every product that is sold out and returns a list of those products|list(check_stock({"a": 0, "b": 2, "c": 0})) == ["a", "c"]
add_user|takes a list of users and a name, appends the name, outputs it and returns the list|add_user(["ann"], "bob") == ["ann", "bob"]
safe_divide|takes two numbers, divides the first by the second, outputs the quotient and returns it|safe_divide(6, 3) == 2
process_orders|takes a list of orders, outputs progress for each order and returns how many orders there were|process_orders(["a", "b"]) == 2
score_summary|takes a list of scores, outputs the highest and the lowest score and returns their difference|score_summary([3, 9, 5]) == 6
login_attempts|takes a list of true and false values for login attempts, outputs each failed attempt and returns how many failed|login_attempts([True, False, False]) == 2
greet_all|takes a list of names, outputs a greeting for each and returns the number of names|greet_all(["ann", "bob"]) == 2
remove_negatives|takes a list of numbers, outputs each negative number and returns a list without them|remove_negatives([1, -2, 3]) == [1, 3]
temperature_alert|takes a list of temperatures, outputs a warning for each above 30 and returns how many warnings there were|temperature_alert([20, 31, 40]) == 2
apply_discount|takes a price and a percentage, outputs the reduced price and returns it|abs(apply_discount(100, 20) - 80) < 1e-9
slow_sum|takes a list of numbers, outputs the running total after each number and returns the sum|slow_sum([1, 2, 3]) == 6
validate_emails|takes a list of e-mail addresses, outputs each one without an @ and returns a list of the valid ones|validate_emails(["a@b.c", "x"]) == ["a@b.c"]
transfer|takes two account balances and an amount, moves the amount from the first to the second, outputs both balances and returns them as a tuple|tuple(transfer(10, 5, 3)) == (7, 8)
count_errors|takes a list of text lines, outputs each line that contains ERROR and returns how many there were|count_errors(["ok", "ERROR a", "ERROR b"]) == 2
grade_report|takes a dictionary of grades by student, outputs the grade of each student and returns the average grade|abs(grade_report({"a": 2, "b": 4}) - 3) < 1e-9
retry_count|takes a number of retries, outputs each retry and returns the number|retry_count(3) == 3
sort_and_show|takes a list of numbers, sorts it, outputs the sorted list and returns it|list(sort_and_show([3, 1, 2])) == [1, 2, 3]
compare_versions|takes two integers, outputs which one is larger and returns the larger one|compare_versions(2, 5) == 5; compare_versions(7, 3) == 7
battery_status|takes a battery level from 0 to 100, outputs a warning if it is below 20 and returns whether it is|battery_status(10) == True; battery_status(50) == False
vote_winner|takes a dictionary of votes by candidate, outputs the winner and returns the winner's name|vote_winner({"a": 1, "b": 4}) == "b"
build_report|takes a dictionary of sales by month, outputs the sales of each month and returns the total|build_report({"May": 4, "June": 6}) == 10
evens_seen|takes a list of integers, outputs each even one and returns a list of them|evens_seen([1, 2, 4]) == [2, 4]
"""
_TEACHING: dict[Kind, str] = {
    "pure": """
cube|returns the cube of a number
sort_by_length|sorts a list of words by their length
capitalize_words|capitalizes each word of a sentence
count_zeros|counts the zeros of a list
multiply_all|returns the product of a list of numbers
is_even|tells whether a number is even
interleave|takes two lists of equal length and interleaves them
power|takes a base and an exponent and returns the power
median|returns the median of a list of numbers
rotate|takes a list and a number and rotates the list by that number
common_items|returns the items that two lists have in common
to_snake_case|turns a camel-case name into snake case
digits|returns the digits of an integer as a list
is_sorted|tells whether a list is sorted
caesar|takes a text and a shift and encrypts the text with a Caesar cipher
distance|takes two points as tuples and returns their distance
compress|replaces repeated characters of a text by the character and its count
unique_characters|tells whether all characters of a text are different
dot_product|returns the dot product of two lists of numbers
range_of|returns the difference between the largest and the smallest number of a list
""",
    "lookup": """
find_email|takes a dictionary of e-mail addresses by name and a name and returns the address
last_index|takes a list and a value and returns the last position of the value
first_negative|returns the first negative number of a list
parse_number|reads a text such as "3.5" and returns the number
weekday_number|takes the English name of a weekday and returns its number
get_setting|takes a dictionary of settings and a key and returns the setting
find_student|takes a list of students with names and an id and returns the student with that id
first_upper|returns the first upper-case letter of a text
reciprocal|returns the reciprocal of a number
extract_year|returns the year of a date such as "2024-05-01"
file_type|returns the type of a file by its extension
longest_name|returns the longest name of a list
lookup_country|takes a dictionary of countries by code and a code and returns the country
logarithm|returns the natural logarithm of a number
second_item|returns the second item of a list
find_word|takes a list of words and a letter and returns the first word that starts with the letter
largest|returns the largest number of a list
parse_time|reads a time such as "12:30" and returns the hours and minutes as a tuple
color_code|takes the name of a color and returns its hexadecimal code
find_book|takes a list of books with titles and a title and returns the book
""",
    "files": """
count_characters|takes the path of a text file and returns the number of its characters
last_line|takes the path of a text file and returns its last line
list_folders|takes the path of a folder and returns a list of the folders in it
read_csv_rows|takes the path of a CSV file and returns a list of its rows
write_text|takes the path of a file and a text and writes the text into the file
move_file|takes the path of a file and a folder and moves the file into the folder
newest_file|takes the path of a folder and returns its newest file
is_empty_file|takes the path of a file and tells whether it is empty
number_lines|takes the path of a text file and returns its lines with their numbers
load_settings|takes the path of a JSON file and returns the settings in it
save_list|takes the path of a file and a list and saves each item on its own line
delete_empty_files|takes the path of a folder and deletes the empty files in it
largest_file|takes the path of a folder and returns its largest file
upper_case_file|takes the path of a text file and turns its text into upper case
backup_file|takes the path of a file and makes a copy of it that ends in .bak
find_python_files|takes the path of a folder and returns all Python files below it
folder_size|takes the path of a folder and returns the size of all its files
read_lines|takes the path of a text file and returns a list of its lines
file_suffix|takes the path of a file and returns its extension
word_in_file|takes the path of a text file and a word and tells whether the word is in the file
""",
    "reports": """
sum_expenses|takes a list of expenses, outputs each of them and returns the sum
show_inventory|takes a dictionary of products and counts, outputs each product and returns the number of products
failed_tests|takes a dictionary of test names and outcomes, outputs each failed test and returns how many failed
remind|takes a list of tasks, outputs a reminder for each and returns the number of tasks
double_all|takes a list of numbers, outputs each doubled number and returns a list of them
deposit|takes a balance and an amount, adds the amount, outputs the new balance and returns it
overdue|takes a dictionary of days by book, outputs each book above 14 days and returns a list of them
ticks|takes a number, outputs each second up to it and returns the number
best_player|takes a dictionary of points by player, outputs the best player and returns the name
missing_keys|takes a dictionary and a list of keys, outputs each missing key and returns a list of them
convert_all|takes a list of prices and a rate, outputs each converted price and returns a list of them
speed_check|takes a list of speeds, outputs a warning for each above 50 and returns how many there were
shout|takes a list of words, outputs each in upper case and returns the number of words
pay_bill|takes a bill and a payment, outputs the change and returns it
queue_status|takes a list of jobs, outputs how many are waiting and returns the number
sum_pairs|takes a list of pairs of numbers, outputs the sum of each pair and returns a list of the sums
check_password|takes a password, outputs whether it is long enough and returns whether it is
collect_votes|takes a list of votes, outputs each vote and returns a dictionary with the count of each
rank_scores|takes a list of scores, outputs them from highest to lowest and returns the sorted list
pack_items|takes a list of weights and a limit, outputs each item that fits and returns the total weight
""",
}


def _read(kind: Kind, group: str, text: str) -> tuple[Question, ...]:
    questions = []
    for line in text.strip().splitlines():
        function, task, *assertions = line.split("|", 2)
        parts = tuple(part.strip() for part in "".join(assertions).split("; ") if part)
        questions.append(
            Question(
                f"{kind}/{group}/{function}",
                f"Write a Python function `{function}` that {task}.",
                function,
                parts,
            )
        )
    return tuple(questions)


_EXAM: dict[Kind, str] = {"pure": _PURE, "lookup": _LOOKUP, "files": _FILES, "reports": _REPORTS}

EXAM: dict[Kind, tuple[Question, ...]] = {kind: _read(kind, "exam", text) for kind, text in _EXAM.items()}
TEACHING: dict[Kind, tuple[Question, ...]] = {
    kind: _read(kind, "teaching", text) for kind, text in _TEACHING.items()
}
